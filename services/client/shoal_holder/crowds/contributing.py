"""One contribution to a crowd job: pure, without input or output.

Its inputs are the drawn weights and one record, or none. The touched coordinate and the noise
depend on neither.
"""

from typing import Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_holder.crowds.crowd import Crowd
from shoal_holder.fair_bits import FairBits
from shoal_holder.noise import NoiseSampler
from shoal_protocol.crowds.documents import Draw, Submission
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.crowds.updates import contribute
from shoal_protocol.privacy.mechanisms import LaplacePart
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.documents import Role, Signed, sign
from shoal_protocol.wire.encoding import Int64Vector

NONCE_BYTES: Final = 32


def noise_part(task: CrowdTask) -> LaplacePart:
    """Return what noise each touched coordinate gets: a discrete Laplace, all of it this client's.

    It is drawn before the weights are, on which it does not depend.
    """
    return LaplacePart(scale=task.noise_scale, parties=1)


def draw_noise(task: CrowdTask, contributions: int, noise: NoiseSampler) -> NDArray[np.int64]:
    """Return the noise of so many contributions, shape (contributions, task.touched).

    Raises:
        ValueError: the sampler did not return as many 64-bit integers as asked for.
    """
    drawn = noise(noise_part(task), contributions * task.touched)
    # a float here would silently become an exact-looking integer further on
    if drawn.dtype != np.int64 or drawn.shape != (contributions * task.touched,):
        raise ValueError("a noise sampler must return a vector of 64-bit integers")
    return drawn.reshape(contributions, task.touched)


def make_submission(
    crowd: Crowd,
    draw: Signed[Draw],
    client: int,
    key: SigningKey,
    step: Int64Vector,
    *,
    noise: Int64Vector,
    random_bytes: RandomBytes,
) -> Signed[Submission]:
    """Return the signed submission that answers a verified draw by a step on one record.

    `step`, shape (p,), is a clipped one from the drawn weights, zeros without a record. `client` is
    the index of `key` on the roster; `noise`, shape (task.touched,), was drawn for this
    contribution alone. Call it once for a draw, and keep the bytes for retries.

    Raises:
        ValueError: a shape does not fit the task.
    """
    task = crowd.request.task
    one = task.variant == "one"
    coordinate = FairBits(random_bytes).below(task.dimension) if one else None
    weights = np.array(draw.body.weights, np.int64)
    sent = contribute(task, weights, step, coordinate=coordinate, noise=noise)
    body = Submission(
        manifest=crowd.request.manifest, client=client, draw=draw, weights=tuple(sent.tolist())
    )
    return sign(body, Role.CLIENT, key)
