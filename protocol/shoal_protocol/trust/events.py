"""How an event must be coded: 0 and 1, or by a value that is named."""

from shoal_protocol.trust.dictionary import Category, Date, Flag, Number


def event_fault_of(variable: Number | Flag | Category | Date | None) -> str | None:
    """Return why a variable is no indicator of an event, 0 or 1, or None."""
    if isinstance(variable, Category):
        return uncoded_event(variable.name, f'"{variable.levels[-1]}"')
    if variable is None or variable.limits == (0.0, 1.0):
        return None
    return uncoded_event(variable.name, f"{variable.limits[1]:g}")


def uncoded_event(name: str, example: str) -> str:
    """Return that an event is not coded 0 and 1, and how to say which value it is."""
    return (
        f"the event {name!r} is not coded 0 and 1: name the value that is the event, as "
        f'event={{"{name}": {example}}}'
    )
