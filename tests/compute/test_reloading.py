"""A round that is read anew while something is under way in it."""

from tests.world.around_node import Federation


async def test_a_round_that_is_read_anew_keeps_its_lock_and_that_it_is_over(
    federation: Federation,
) -> None:
    """The lock keeps two votes apart; that the trainer has gone on stands in no file."""
    spec = federation.spec()
    await federation.announce(spec)
    book = federation.services[0].node._rounds
    known = book.live[spec.digest]
    book.over(spec.body.job)
    async with known.voting:
        await book.reload(known)
        assert known.voting.locked() and known.over
