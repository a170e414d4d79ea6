"""The names that models, code, protocol and the models' page share: of invariants, guards, and what falls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.bounds import MODELS
from models.runner import HERE, comment_of
from tests.support.law import INVARIANTS, PROTOCOL

ROOT = Path(__file__).parents[2]
PAGE = (HERE / "README.md").read_text()
CODE = "\n".join(path.read_text() for top in ("lib", "functions") for path in sorted((ROOT / top).rglob("*.py")))
# Those of groups are in their own chapter, and are named G1 and on.
OF_GROUPS = sorted(set(re.findall(r"\bG\d\b", PROTOCOL.get("groups", ""))))
STATED = [*sorted(INVARIANTS, key=lambda name: int(name[1:])), *OF_GROUPS]
IN_CODE = re.compile(r'\bmodel: (\w+), "([^"]+)"')
IN_PROTOCOL = re.compile(r'\(model:\s+(\w+),\s+"([^"]+)"\)')


def source(model: str) -> str:
    return (HERE / f"{model}.tla").read_text()


def invariants_of(model: str) -> set[str]:
    """Return the invariants that TLC checks of a model, without those that every model has for itself."""
    return set((HERE / f"{model}.cfg").read_text().partition("INVARIANTS\n")[2].partition("CHECK_")[0].split())


def guards() -> set[tuple[str, str]]:
    return {(name, guard) for name, model in MODELS.items() for guard in model.guards}


def test_the_bounds_and_the_folder_have_the_same_models() -> None:
    assert {path.stem for path in HERE.glob("*.tla") if not path.stem.endswith("Trace")} == set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_the_guards_of_a_model_are_those_that_are_switched_off(model: str) -> None:
    text = source(model)
    named = set(re.findall(r'"([^"]+)"', text.partition("\nGuards ==")[2].partition("\nASSUME")[0]))
    asked = set(re.findall(r'On\("([^"]+)"\)', text))
    assert named == asked == set(MODELS[model].guards)


@pytest.mark.parametrize("model", MODELS)
def test_a_guard_matters_or_says_why_it_stays(model: str) -> None:
    text = source(model)
    for name, guard in MODELS[model].guards.items():
        assert bool(guard.falls) != bool(guard.why), name
        assert guard.falls in invariants_of(model) or f'"{guard.falls}"' in text, name


def test_each_guard_of_a_model_is_in_the_code_and_the_other_way_round() -> None:
    named = set(IN_CODE.findall(CODE))
    assert guards() - named == set()
    assert named - guards() == set()


def test_the_protocol_names_each_guard_where_it_states_the_rule_and_no_other() -> None:
    named = {(model, " ".join(guard.split())) for model, guard in IN_PROTOCOL.findall("\n".join(PROTOCOL.values()))}
    assert guards() - named == set()
    assert named - guards() == set()


@pytest.mark.parametrize("model", MODELS)
def test_each_invariant_of_a_model_is_checked_and_has_its_sentence(model: str) -> None:
    defined = set(re.findall(r"^([IG]\d+\w*|\w+AnswersAreTrue) ==", source(model), re.M))
    assert defined <= invariants_of(model)
    for name in invariants_of(model):
        assert comment_of(model, name), name


@pytest.mark.parametrize("model", MODELS)
def test_the_invariants_of_a_trace_are_those_of_its_model(model: str) -> None:
    path = HERE / f"{model}Trace.cfg"
    if path.exists():
        traced = set(path.read_text().partition("INVARIANTS\n")[2].partition("CHECK_")[0].split())
        assert traced == {*invariants_of(model), "Unfinished"}


@pytest.mark.parametrize("model", MODELS)
def test_the_story_of_a_history_distinguishes_no_states(model: str) -> None:
    text = source(model)
    assert "VIEW View" in (HERE / f"{model}.cfg").read_text()
    assert "story" not in text.partition("END TRANSLATION")[2]


@pytest.mark.parametrize("invariant", STATED)
def test_each_invariant_is_in_a_model_or_the_page_says_why_not(invariant: str) -> None:
    numbers = {
        number for model in MODELS for name in invariants_of(model) for number in re.findall(r"[IG]\d+(?=_)", name)
    }
    excused = re.findall(rf"^\| {invariant} \|.*\|$", PAGE.partition("## Not in a model")[2], re.M)
    assert (invariant in numbers) != bool(excused)


@pytest.mark.parametrize("model", MODELS)
def test_the_pages_table_has_each_invariant_with_the_guards_that_keep_it(model: str) -> None:
    rows = dict(re.findall(rf"^\| `(\w+)` \| {model} \| (.*) \|$", PAGE, re.M))
    falls = {name: guard.falls for name, guard in MODELS[model].guards.items()}
    kept = {name: {guard for guard, fallen in falls.items() if fallen == name} for name in invariants_of(model)}
    answers = next((name for name in kept if name.endswith("AnswersAreTrue")), "")
    if answers:
        kept[answers] = {guard for guard, fallen in falls.items() if fallen and fallen not in kept}
    assert {name: set(re.findall(r"`([^`]+)`", row)) for name, row in rows.items()} == kept
