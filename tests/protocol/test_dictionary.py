"""A variable of the data dictionary never changes, and only the authority adds one."""

from datetime import date
from typing import Any

import pytest
from nacl.signing import SigningKey
from pydantic import ValidationError

from shoal_protocol.queries.columns import ColumnBounds, Level, Log, Power, Term
from shoal_protocol.trust.dictionary import (
    Category,
    DataDictionary,
    Date,
    Flag,
    Number,
    fault_of,
    open_dictionary,
    read_dictionary,
)
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, WrongSigner
from tests.world.examples import AUTHORITY, CONSORTIUM

AGE = Number(name="age", meaning="age at admission", unit="years", lower=18, upper=100)
SMOKER = Flag(name="smoker", meaning="smokes today")
STAGE = Category(name="stage", meaning="stage of the tumour", levels=("I", "II", "III"))
BORN = Date(name="born", meaning="day of birth", earliest=date(1970, 1, 2), latest=date(1980, 1, 1))


def dictionary(**changes: Any) -> DataDictionary:
    return DataDictionary.model_validate(
        {
            "consortium": CONSORTIUM.manifest.consortium,
            "authority": CONSORTIUM.manifest.authority,
            "sequence": 1,
            "previous": None,
            "variables": (AGE, SMOKER, STAGE, BORN),
        }
        | changes
    )


def signed(body: DataDictionary, key: SigningKey = AUTHORITY, signer: str = "authority") -> bytes:
    return sign(body, signer, key).encode()


def following(first: DataDictionary, *variables: Any) -> DataDictionary:
    return dictionary(sequence=first.sequence + 1, previous=first.digest, variables=variables)


@pytest.mark.parametrize(
    "broken",
    [
        {"variables": ()},
        {"variables": (AGE, AGE)},
        {"sequence": 2},
        {"previous": "0" * 64},
        {"variables": ({**AGE.model_dump(), "upper": 18},)},
        {"variables": ({**AGE.model_dump(), "name": " "},)},
        {"variables": (AGE, {**AGE.model_dump(), "name": " age\u00a0"})},
        {"variables": ({**AGE.model_dump(), "meaning": ""},)},
        {"variables": ({**STAGE.model_dump(), "levels": ("I", "I")},)},
        {"variables": ({**STAGE.model_dump(), "levels": ("\u00e9", "e\u0301 ")},)},
        {"variables": ({**STAGE.model_dump(), "levels": ("I", " ")},)},
        {"variables": ({**STAGE.model_dump(), "levels": ("I",)},)},
        {"variables": ({**BORN.model_dump(), "latest": date(1970, 1, 2)},)},
    ],
)
def test_what_is_incomplete_or_contradicts_itself_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        dictionary(**broken)


def test_names_and_levels_are_canonical_and_signed_in_no_other_form() -> None:
    written = {**STAGE.model_dump(), "name": " e\u0301tat ", "levels": ("I ", "\u00a0II")}
    (found,) = dictionary(variables=(written,)).variables
    assert found == STAGE.model_copy(update={"name": "\u00e9tat", "levels": ("I", "II")})
    other = signed(dictionary(variables=(STAGE,))).replace(b'"III"', b'"III "')
    with pytest.raises(MalformedDocument, match="not written in its canonical form"):
        read_dictionary(other, CONSORTIUM)


def test_variables_are_added_and_retired() -> None:
    first = dictionary()
    weight = Number(name="weight", meaning="weight", unit="kg", lower=20, upper=300)
    retired = AGE.model_copy(update={"retired": True})
    second = following(first, weight, SMOKER, STAGE, BORN, retired)
    assert open_dictionary(signed(second), CONSORTIUM, first).body == second
    back = following(second, weight, SMOKER, STAGE, BORN, AGE)
    with pytest.raises(MalformedDocument, match="only added"):
        open_dictionary(signed(back), CONSORTIUM, second)


@pytest.mark.parametrize(
    "changed",
    [
        (SMOKER, STAGE, BORN),
        (AGE.model_copy(update={"upper": 110.0}), SMOKER, STAGE, BORN),
        (AGE.model_copy(update={"meaning": "age today"}), SMOKER, STAGE, BORN),
        (AGE, SMOKER, STAGE.model_copy(update={"levels": ("I", "III", "II")}), BORN),
        (AGE, SMOKER, STAGE, BORN.model_copy(update={"missing": "indicator"})),
    ],
)
def test_a_variable_never_changes_or_goes_away(changed: tuple[Any, ...]) -> None:
    first = dictionary()
    with pytest.raises(MalformedDocument, match="only added"):
        open_dictionary(signed(following(first, *changed)), CONSORTIUM, first)


def test_only_the_consortiums_authority_signs_one() -> None:
    mine = SigningKey(b"m" * 32)
    with pytest.raises(BadSignature):
        read_dictionary(signed(dictionary(), mine), CONSORTIUM)
    with pytest.raises(WrongSigner):
        read_dictionary(signed(dictionary(), signer="trainer"), CONSORTIUM)
    with pytest.raises(MalformedDocument, match="another consortium"):
        read_dictionary(signed(dictionary(consortium="other")), CONSORTIUM)
    with pytest.raises(MalformedDocument, match="not the first"):
        open_dictionary(signed(following(dictionary(), AGE)), CONSORTIUM, None)


def column(name: str) -> ColumnBounds:
    return ColumnBounds(name=name, lower=0, upper=2)


def test_a_job_reads_what_the_dictionary_has() -> None:
    known = dictionary().named()
    numbers = [column("age"), column("smoker"), column("born")]
    assert fault_of(known, numbers, as_levels=False) is None
    assert fault_of(known, [column("stage")], as_levels=True) is None
    assert "no quantity" in (fault_of(known, [column("stage")], as_levels=False) or "")


AGE_ITSELF = Power(variable="age", lower=18, upper=100, exponent=1)


@pytest.mark.parametrize(
    ("factors", "fault"),
    [
        ([AGE_ITSELF, Level(variable="stage", value=2)], None),
        ([Level(variable="smoker", value=1)], None),
        ([Level(variable="age", value=40.5)], None),
        ([Power(variable="age", lower=20, upper=40, exponent=2)], None),
        ([Log(variable="age", lower=18, upper=100)], None),
        ([AGE_ITSELF, Level(variable="stage", value=3)], "stage, has no such level"),
        ([Level(variable="stage", value=0.5)], "stage, has no such level"),
        ([Level(variable="smoker", value=2)], "smoker, has no such level"),
        ([Level(variable="age", value=17)], "age, has no such level"),
        ([Power(variable="stage", lower=0, upper=2, exponent=1)], "stage, has 3 levels"),
        ([Power(variable="age", lower=17, upper=100, exponent=2)], "age, is from 18 to 100"),
        ([Log(variable="age", lower=18, upper=101)], "age, is from 18 to 100"),
        ([AGE_ITSELF, Level(variable="stge", value=2)], "near to it are stage"),
    ],
)
def test_a_term_reads_variables_as_the_dictionary_has_them(
    factors: list[Any], fault: str | None
) -> None:
    read = ColumnBounds(name="a column", lower=0, upper=1, term=Term(factors=tuple(factors)))
    found = fault_of(dictionary().named(), [column("smoker"), read], as_levels=False)
    if fault is None:
        assert found is None
    else:
        assert found is not None and found.startswith("column 2") and fault in found
