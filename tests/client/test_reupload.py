"""A data holder asks again what nodes hold, and sends the same bytes to those that lost them."""

from shoal_agent.data_holder import DataHolder
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from tests.world.around_holder import World, problem

CLIENTS = 12


async def answered(world: World, holder: DataHolder) -> Signed[RoundSpec]:
    """Have all clients answer a round, one second after it began."""
    request = world.submit()
    await holder.step()
    spec = world.announce(request)
    await holder.step()
    world.clock.move(1)
    return spec


async def pass_time(world: World, holder: DataHolder, seconds: int) -> None:
    for _ in range(seconds):
        await holder.step()
        world.clock.move(1)


async def test_a_node_that_was_out_of_reach_is_asked_once_it_answers(
    world: World, holder: DataHolder
) -> None:
    await answered(world, holder)
    node = world.nodes[2]
    world.wire.scripts["compute-2"] = lambda request: problem(503, "not-ready")
    await pass_time(world, holder, 35)  # the node was asked what it holds, and did not say it
    node.held.clear()
    world.wire.scripts.clear()
    await pass_time(world, holder, 5)
    assert [each.queries for each in world.nodes] == [1, 1, 1]
    assert len(node.held) == 1


async def test_envelopes_are_erased_when_the_deadline_has_passed(world: World) -> None:
    holder = world.holder()
    spec = await answered(world, holder)
    sent = [each for node in world.nodes for each in node.held.values()]

    def on_disk() -> list[bool]:
        files = [file.read_bytes() for file in (world.directory / "holder").iterdir()]
        return [any(each[92:140] in file for file in files) for each in sent]

    await pass_time(world, holder, 50)
    assert all(on_disk())
    world.clock.now = spec.body.deadline
    await holder.step()
    [job] = (await holder.status()).jobs
    assert (job.rounds[0].ended, job.rounds[0].envelopes) == ("delivered", {"acknowledged": 3})
    assert not any(on_disk())
    await holder.close()
