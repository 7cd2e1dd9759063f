"""Space files: every mistake is reported with file, line and column, and with a remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_specs import SPACE

from ablate.errors import SpaceError
from ablate.spec.design import PointCost
from ablate.spec.document import read_document
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import find_space, load_space
from ablate.spec.space import SpaceSpec

pytestmark = pytest.mark.usefixtures("folder")


def write(text: str | bytes, name: str = "s.yaml") -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def load(text: str | bytes) -> SpaceSpec:
    return load_space(write(text))


def refused(location: str) -> str:
    with pytest.raises(SpaceError) as caught:
        load_space(location)
    return str(caught.value)


def changed(old: str, new: str, text: str = SPACE) -> str:
    assert text.count(old) == 1, f"{old!r} must stand in the text once"
    return text.replace(old, new)


def place(text: str, word: str) -> str:
    """`line:column` of the first `word`."""
    before = text[: text.index(word)]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("simplify_blok", "Did you mean `simplify_block`?"),
        ("spaces/simplify-block.yaml", "Did you mean `simplify_block`?"),
        ("s.yml", "Did you mean `s.yaml`?"),
        ("zzz", "Ready spaces: authors, books,"),
        ("nowhere.yaml", "Ready spaces: authors, books,"),
    ],
)
def test_a_missing_file(location: str, hint: str) -> None:
    write(SPACE)
    write(SPACE, "merge.yaml")
    message = refused(location)
    assert message.startswith(f"{location}: there is no such file")
    assert hint in message


def test_a_shipped_space_is_found_by_name_and_by_the_path_it_has_in_a_checkout() -> None:
    shipped = shipped_spaces() / "simplify_block.yaml"
    for location in ("simplify_block", "simplify_block.yaml", "spaces/simplify_block.yaml", shipped):
        assert find_space(location) == shipped
    own = write(SPACE, "simplify_block.yaml")
    assert find_space(own) == Path(own)


def test_a_link_to_nothing_and_a_pipe() -> None:
    os.symlink("gone.yaml", "link.yaml")
    assert refused("link.yaml").startswith(
        "link.yaml: this is a link to `gone.yaml`, which does not exist. Correct the link"
    )
    os.mkfifo("pipe.yaml")
    assert refused("pipe.yaml").startswith("pipe.yaml: this is not a regular file; expected a space file.")


def test_a_folder() -> None:
    write(SPACE, "dir/a.yaml")
    assert refused("dir") == "dir: this is a folder; expected a space file. Name a file in it, such as `dir/a.yaml`."


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read() -> None:
    Path(write(SPACE)).chmod(0)
    assert "s.yaml: this cannot be read (Permission denied)" in refused("s.yaml")


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("", "1:1", "got an empty file. `ablate new NAME`"),
        ("# only a comment\n", "1:1", "got an empty file"),
        ("- a\n", "1:1", "got a list"),
        ("abc\n", "1:1", "got a single value"),
        ("a: [1\nb: 2\n", "2:2", "this is not YAML: expected ',' or ']', but got ':'"),
        ("a:\n\tb: 1\n", "2:1", "found character '\\t' that cannot start any token"),
        ("name: a\nmodel: {depth: 1, depth: 2}\n", "2:19", 'found duplicate key "depth". Correct it'),
        ("name: a\nname: b\n", "2:1", 'found duplicate key "name"'),
        ("a: *x\n", "1:4", "found undefined alias 'x'"),
        ("a: &x {b: *x}\n", "1:4", "this alias contains itself"),
        (
            "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
            "6:1",
            "at most 100,000 keys and items; got more, with all aliases expanded",
        ),
        ("a: 1\n---\nb: 1\n", "2:1", "expected a single document in the stream, but found another document"),
        ("? [a, b]\n: 1\n", "1:3", "a key must be a single word"),
        ("name: a\nquestion: \x07\n", "2:11", "U+0007"),
        ('name: a\nquestion: "\\ud800"\n', "2:11", "this text contains a lone surrogate"),
        ('name: a\n"\\udfff": 1\n', "2:1", "this text contains a lone surrogate"),
        ('name: a\nresources: {checkpoint_dir: "a\\0b"}\n', "2:29", "this text contains a NUL character"),
        *(
            (f"name: a\nsteps: {digits}\n", "2:8", "this whole number has too many digits")
            for digits in ("9" * 5000, "0x" + "f" * 5000, "-0b" + "1" * 20_000, "0o" + "7" * 6000, "1_0" * 3000)
        ),
        ("name: a\nquestion: caf\xe9\n".encode("latin-1"), "2:14", "this is not UTF-8 text. Save the file as UTF-8."),
    ],
)
def test_a_file_that_is_no_mapping_in_yaml(text: str | bytes, where: str, problem: str) -> None:
    message = refused(write(text))
    assert message.startswith(f"s.yaml:{where}: ")
    assert problem in message
    assert "\n" not in message


def _doubling(first: str, twice: str) -> str:
    """Thirty mappings; each names the one before it twice."""
    return f"a0: &a0 {first}\n" + "".join(f"a{i}: &a{i} {{{twice.format(f'*a{i - 1}')}}}\n" for i in range(1, 30))


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_doubling("{x: 1}", "p: {0}, p: {0}"), "this file is too large with all aliases expanded"),
        (_doubling("{x: 1}", "<<: {0}, <<: {0}"), "this file is too large with all aliases expanded"),
        (_doubling("{}", "<<: {0}, <<: {0}"), "this file is too large with all aliases expanded"),
        ("name: a\n# " + "x" * 50_000_000, "s.yaml: this file is too large; expected a space of at most 131,072 bytes"),
        ("a: " + "[" * 100_000, "s.yaml:1:53: this is nested too deeply; got more than 50 levels"),
    ],
)
def test_a_file_that_would_take_long_to_read_is_refused_at_once(text: str, problem: str) -> None:
    assert problem in refused(write(text))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("{margin: 0.05}", "{margin: 5.0e-324}", "objective.margin`: the value should be at least 1e-30"),
        ("{margin: 0.05}", "{margin: 1.7e+308}", "objective.margin`: the value should be less than or equal to 1e+30"),
        ("training:", "resources: {memory: 1.0e+300}\ntraining:", "resources.memory`: the value should be less than"),
    ],
)
def test_numbers_have_bounds(old: str, new: str, place: str) -> None:
    assert place in refused(write(changed(old, new)))


@pytest.mark.usefixtures("no_hang")
def test_a_grid_of_tuned_values_is_counted_before_it_is_enumerated() -> None:
    values = ", ".join(f"{number}.0e-6" for number in range(1, 200))
    paths = [f"training.optimizer.{name}" for name in ("lr", "weight_decay", "eps", "beta1", "beta2")]
    tune = f"tune: {{grid: {{{', '.join(f'{path}: [{values}]' for path in paths)}}}, seeds: 1}}\n"
    assert "combinations, and each is trained for every variant" in refused(
        write(changed("switches:", tune + "switches:"))
    )


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(
    ("heads", "problem"),
    [
        ("2147483648", "`model.heads`: the value should be less than or equal to 2147483647; got 2147483648."),
        ("2147483647", "`model.heads`: the heads must divide the width, which is 32; got 2147483647. Set `heads: 32`"),
        ("24", "Set `heads: 16`"),
        ("5", "Set `heads: 4`"),
    ],
)
def test_the_number_of_heads_is_never_counted_through(heads: str, problem: str) -> None:
    assert problem in refused(write(changed("heads: 4", f"heads: {heads}")))


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(("kv_heads", "near"), [("2147483647", 4), ("3", 2)])
def test_the_number_of_heads_of_keys_is_never_counted_through(kv_heads: str, near: int) -> None:
    block = "block: {mixer: {kind: attention, kv_heads: " + kv_heads + "}}"
    assert f"Set `kv_heads: {near}`." in refused(write(changed("block: pre_ln", block)))


@pytest.mark.parametrize(
    ("old", "new", "at", "problem"),
    [
        ("width:", "widht:", "widht", "`model.widht`: there is no key `widht` here. Did you mean `width`?"),
        ("training:", "trainnig:", "trainnig", "Did you mean `training`?"),
        (", batch_size: 4", "", "training", "`training`: the key `batch_size` is missing."),
        ("{margin: 0.05}", "{}", "objective", "`objective`: the key `margin` is missing."),
        ("depth: 3", "depth: three", "depth", "`model.depth`: a whole number is expected here; got 'three'."),
        ("lr: 1e-3", "lr: true", "lr", "`training.optimizer.lr`: a number is expected here; got true."),
        ("language_model", "languge_model", "kind", "`task.kind`: there is no task kind `languge_model`. Did you mean"),
        ("leave_one_out", "leave_one", "design", "`design`: there is no design kind `leave_one`. Did you mean"),
        ("{kind: bpe, vocab_size: 512}", "bpe", "tokenizer", "the key `vocab_size` is missing"),
        ("{kind: bpe, vocab_size", "{vocab_size", "tokenizer", "has no `kind`. Add `kind:`"),
        ("python_stdlib", "python_stdlb", "data", "Did you mean `builtin:python_stdlib`?"),
        ("pre_ln", "pre_lm", "block", "there is no block of this name; got 'pre_lm'. Did you mean `pre_ln`?"),
        ("pre_ln", "{mixer: attention, arrangement: parallel}", "block", "Set `skips.mlp: 0`"),
        ("pre_ln", "{mixer: {kind: attention, matmul_order: kv_first}}", "matmul_order", "Set `softmax: false`"),
        ("pre_ln", "pre_ln, exceptions: {first: {nrom: none}}", "nrom", "Did you mean `norm`?"),
        ("block.norm: none", "block.nrom: none", "block.nrom", "Did you mean `norm`?"),
        ("block.norm: none", "blok.norm: none", "blok.norm", "Did you mean `block`?"),
        ("block.norm: none", "block.gains: {mlp_branch: {inti: 1}}", "inti", "Did you mean `init`?"),
        ("block.norm: none", "block: pre_lm", "block: pre_lm", "Did you mean `pre_ln`?"),
        ("none: {block.norm: none}", "none:", "none:", "Write `{}` for the setting that changes nothing."),
        ("    none: {block.norm: none}\n", "", "norm", "a switch has at least two settings, and this one has 1"),
        ("rms: {}", "rms: {block.arrangement: parallel}", "rms", "Set `skips.mlp: 0`"),
        ("design:", "variants: {a: {nrm: none}}\ndesign:", "nrm", "there is no switch `nrm`. Did you mean `norm`?"),
        ("design:", "variants: {a: {norm: nome}}\ndesign:", "norm: nome", "Did you mean `none`?"),
        (
            "leave_one_out",
            "{kind: leave_one_out, seeds: 0}",
            "seeds",
            "`design.seeds`: the value should be at least 1;",
        ),
        ("leave_one_out", "{kind: leave_one_out, seeds: true}", "seeds", "`design.seeds`: a number is expected here"),
        ("leave_one_out", "{kind: grid, seeds: {start: 4, max: 3}}", "max", "`design.seeds.max`: seeds are added from"),
        (
            "leave_one_out",
            "{kind: sweep, path: model.depth, values: [4, a]}",
            "a]",
            "`design.values.1`: a number is exp",
        ),
        ("leave_one_out", "{kind: sweep, path: model.depth, values: [true]}", "true", "`design.values.0`: a number is"),
        (
            "design:",
            "resources: {gpus: true}\ndesign:",
            "gpus",
            "`resources.gpus`: a number is expected here; got true",
        ),
        ("pre_ln", "{mixer: he}", "mixer", "`he` is a named block, which has a mixer: set `block: he`."),
        ("block.norm: none", "block.mixer: he", "block.mixer", "`he` is a named block, which has a mixer: set `blo"),
        ("block: pre_ln", "block: fnet", "block: fnet", "`model.block.mixer.kind`: a decoder must hide the future"),
        ("lr: 1e-3", "lr: 1e-3, betas: [0.9]", "betas", "`training.optimizer.betas`: entry 2 of this list is missing."),
        (
            "pre_ln",
            "pre_ln, exceptions: {2-1: {norm: none}}",
            "2-1",
            "`model.exceptions.2-1`: a range goes from its first layer to its last; got '2-1'. Write `1-2`.",
        ),
        (
            "pre_ln",
            "pre_ln, exceptions: {last: {mixer: linear}, 1-2: {mixer: {kind: retention}}}",
            "1-2",
            "`model.exceptions.1-2`: `last` and `1-2` both set `mixer.kind` of layer 2.",
        ),
        (
            "design:",
            "claims: [{id: a, expect: ordered, margin: 1, order: [baseline]}]\ndesign:",
            "order: [",
            "`claims.0.order`: at least 2 entries are expected here, but there is 1.",
        ),
        ("name: t", "name: a b", "name", "a name is letters (a-z, A-Z), digits"),
    ],
)
def test_a_mistake_is_reported_at_its_position(old: str, new: str, at: str, problem: str) -> None:
    text = changed(old, new)
    message = refused(write(text))
    assert message.startswith(f"s.yaml:{place(text, at)}: ")
    assert problem in message
    assert "\n" not in message


def test_exceptions_may_share_a_layer_as_long_as_each_sets_something_else() -> None:
    space = load(changed("pre_ln", "pre_ln, exceptions: {last: {mixer: linear}, 1-2: {norm: none}}"))
    assert [(block.mixer.kind_name(), block.norm.kind) for block in space.resolve({}).model.blocks[1:]] == [
        ("attention", "none"),
        ("linear", "none"),
    ]


def test_what_a_design_refuses_is_reported_at_its_position() -> None:
    text = changed("leave_one_out", "{kind: sweep, path: model.widht, values: [1, 2]}")
    space = load(text)
    context = space.design_context(lambda point: "there is no key `widht` here", lambda point: PointCost(1, 1.0))
    with pytest.raises(SpaceError) as caught:
        space.design.build(context)
    assert str(caught.value).startswith(f"s.yaml:{place(text, 'path')}: `design.path`: no variant makes a model")


def test_several_mistakes_are_reported_at_once_each_in_its_place() -> None:
    text = changed("depth: 3, width: 32", "depth: x, width: y").replace("steps: 10", "steps: z")
    lines = refused(write(text)).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"s.yaml:{place(text, word)}" for word in ("depth", "width", "steps")
    ]


def test_a_space_is_read_as_it_is_written() -> None:
    space = load(SPACE)
    assert space.text == SPACE
    assert load(SPACE.replace("1e-3", "0.001")).resolve({}).content_hash() == space.resolve({}).content_hash()


def test_anchors_merges_dates_and_a_byte_order_mark() -> None:
    text = changed("name: t", "name: 2020-01-01").replace(
        "training: {steps: 10, batch_size: 4, optimizer: {lr: 1e-3}}",
        "training: {<<: &few {steps: 10, batch_size: 4}, optimizer: {lr: 1e-3}}",
    )
    text = text.replace("none: {block.norm: none}", "none: &none {block.norm: none}\n    also: *none")
    space = load(b"\xef\xbb\xbf" + text.encode())
    assert space.name == "2020-01-01"
    assert space.training.steps == 10
    assert space.switches["norm"]["also"] == {"block.norm": "none"}
    wrong = text.replace("steps: 10", "steps: ten")
    assert refused(write(wrong)).startswith(f"s.yaml:{place(wrong, 'steps')}: `training.steps`")


CHILD = "extends: base.yaml\nname: child\n"


def test_each_reading_is_that_of_the_file_whatever_was_done_to_an_earlier_one() -> None:
    path = Path(write("x: 1\na: {b: [1]}\n"))
    first = read_document(path, "a space")
    first.plain["a"]["b"].append(2)
    first.positions.clear()
    again = read_document(path, "a space")
    assert again.plain == {"x": 1, "a": {"b": [1]}}
    assert again.position(("a", "b")).line == 2
    write("x: 1\n\na: {b: [3]}\n")
    edited = read_document(path, "a space")
    assert edited.plain == {"x": 1, "a": {"b": [3]}}
    assert edited.position(("a", "b")).line == 3


def test_a_space_that_extends_another_merges_key_by_key() -> None:
    write(SPACE, "base.yaml")
    child = load(
        CHILD
        + "training: {steps: 99}\n"
        + "switches: {norm: {layer: {block.norm: layer}}, size: {a: {}, b: {model.depth: 1}}}\n"
        + "task: {tokenizer: {kind: bytes}}\n"
    )
    assert (child.name, child.question) == ("child", "Why?")
    assert (child.training.steps, child.training.batch_size) == (99, 4)
    assert list(child.switches) == ["norm", "size"]
    assert list(child.switches["norm"]) == ["rms", "none", "layer"]
    assert child.task.kind_name() == "language_model"
    assert child.task.canonical()["tokenizer"] == {"kind": "bytes"}


def test_null_removes_what_the_other_space_has() -> None:
    write(SPACE + "variants: {v: {norm: none}}\n", "base.yaml")
    assert load(CHILD).variants == {"v": {"norm": "none"}}
    assert load(CHILD + "variants: null\n").variants == {}
    switches = "switches: {norm: null, size: {a: {}, b: {model.depth: 1}}}\nvariants: null\n"
    assert list(load(CHILD + switches).switches) == ["size"]
    assert refused(write(CHILD + "training: null\n")) == "s.yaml:1:1: the key `training` is missing."


def test_a_space_may_extend_a_shipped_one_and_one_that_extends() -> None:
    write("extends: simplify_block\nname: base\ntraining: {steps: 7}\n", "base.yaml")
    child = load("extends: base.yaml\nname: child\ntraining: {batch_size: 3}\n")
    shipped = load_space("simplify_block")
    assert child.switches == shipped.switches
    assert (child.training.steps, child.training.batch_size) == (7, 3)
    assert child.training.optimizer == shipped.training.optimizer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "extends: bse.yaml\n",
            "s.yaml:1:1: `extends`: there is no such file; got `bse.yaml`. Did you mean `base.yaml`?",
        ),
        ("name: a\nextends: [a]\n", "s.yaml:2:1: `extends` must name one space; expected a file or a name; got ['a']."),
        ("extends: s.yaml\n", "s.yaml:1:1: `extends`: a space cannot extend itself. Remove the cycle."),
        ("extends: round.yaml\n", "round.yaml:2:1: `extends`: a space cannot extend itself. Remove the cycle."),
        ("extends: broken.yaml\n", "broken.yaml:2:1: this is not YAML: "),
        ("extends: wrong.yaml\n", f"wrong.yaml:{place(SPACE, 'depth')}: `model.depth`: a whole number is expected"),
        (CHILD + "model: {depth: x}\n", "s.yaml:3:9: `model.depth`: a whole number is expected"),
        (CHILD + "switches: {norm: {none: null}}\n", "s.yaml:3:12: `switches.norm`: a switch has at least two"),
    ],
)
def test_a_mistake_is_reported_in_the_file_that_makes_it(text: str, message: str) -> None:
    write(SPACE, "base.yaml")
    write(changed("depth: 3", "depth: x"), "wrong.yaml")
    write("a: [\n", "broken.yaml")
    write("name: a\nextends: s.yaml\n", "round.yaml")
    assert refused(write(text)).startswith(message)


BLOCK = "description: d\nsource: s\nblock:\n  mixer: attention\n"


def block_beside(text: str) -> None:
    write(text, "blocks/mine.yaml")


def test_a_named_block_beside_the_space_file() -> None:
    block_beside(BLOCK + "  norm: layer\nexceptions:\n  first: {norm: none}\n")
    norms = [block.norm.kind for block in load(changed("pre_ln", "mine")).resolve({}).model.blocks]
    assert norms == ["none", "layer", "layer"]
    in_switch = load(changed("none: {block.norm: none}", "mine: {block: mine}"))
    assert [block.norm.kind for block in in_switch.resolve({"norm": "mine"}).model.blocks] == norms
    write("extends: s.yaml\n", "elsewhere/child.yaml")
    with pytest.raises(SpaceError):
        load_space("elsewhere/child.yaml")
    write("extends: ../s.yaml\n", "elsewhere/child.yaml")
    assert load_space("elsewhere/child.yaml").switches == in_switch.switches


def test_a_block_beside_the_space_file_wins_over_one_that_is_shipped() -> None:
    write(BLOCK + "  norm: layer\n", "blocks/pre_ln.yaml")
    assert load(SPACE).model.block.norm.kind == "layer"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text + "  norm: rmss\n", "blocks/mine.yaml:5:3: `model.block.norm`: "),
        (lambda text: text + "  arrangement: parallel\n", "blocks/mine.yaml:3:1: `model.block.skips.mlp`: "),
        (lambda text: text + "exceptions:\n  last: {nrom: 1}\n", "blocks/mine.yaml:6:10: `model.exceptions.last.nrom`"),
        (lambda text: text.replace("source", "sorce"), "blocks/mine.yaml:2:1: `sorce`: there is no key `sorce` here."),
        (lambda text: text.replace("source: s\n", ""), "blocks/mine.yaml:1:1: the key `source` is missing."),
        (lambda text: text + "a: [\n", "blocks/mine.yaml:6:1: this is not YAML: "),
        (lambda text: "", "blocks/mine.yaml:1:1: a block file is a mapping"),
    ],
)
def test_a_mistake_in_a_named_block_is_reported_in_its_own_file(edit: Callable[[str], str], message: str) -> None:
    block_beside(edit(BLOCK))
    assert refused(write(changed("pre_ln", "mine"))).startswith(message)


def test_the_nearest_block_may_be_the_users_own() -> None:
    block_beside(BLOCK)
    assert "Did you mean `mine`?" in refused(write(changed("pre_ln", "mien")))
