"""The package as it is installed: its command line, its types, its documentation, what importing it costs."""

import ast
import doctest
import importlib.util
import inspect
import pathlib
import pickle
import subprocess
import sys
import textwrap

import numpy
import planish
import pytest

PACKAGE = pathlib.Path(planish.__file__).parent
REPOSITORY = pathlib.Path(__file__).parents[3]


def run(*arguments):
    """Runs Python on these arguments."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("start", [["-m", "planish"], [str(pathlib.Path(sys.executable).parent / "planish")]])
def test_the_command_line(start):
    planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }').save_onnx("relu.onnx")
    version = run(*start, "--version")
    assert (version.returncode, version.stdout) == (0, f"planish {planish.__version__}\n")
    built = run(*start, "build", "relu.onnx", "--tune-level", "0")
    assert built.returncode == 0 and built.stdout.startswith("plan    relu.plan"), built
    assert planish.load("relu.plan")(numpy.ones((1, 4), numpy.float32)).sum() == 4
    wrong = run(*start, "build", "no.onnx")
    assert (wrong.returncode, wrong.stdout) == (2, "") and wrong.stderr.startswith("error: cannot read no.onnx")
    assert run(*start, "--no-such-flag").returncode == 2


def test_importing_it_brings_little_with_it():
    script = "import sys, numpy; before = set(sys.modules); import planish; print(*sorted(set(sys.modules) - before))"
    brought = run("-c", script).stdout.split()
    assert {name.split(".")[0] for name in brought} == {"planish"}, brought


def test_wheels_of_cuda_libraries_in_this_environment_are_looked_at(tmp_path):
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13").write_bytes(b"no library")
    script = f"import sys; sys.path.append({str(tmp_path)!r}); sys.argv = ['planish', 'doctor']; from planish._cli import main; main()"
    seen = run("-c", script)
    assert str(tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13") in seen.stdout + seen.stderr, seen


def test_exceptions_are_pythons_too():
    kinds = planish.errors
    for kind, base in [(kinds.WrongType, TypeError), (kinds.WrongShape, ValueError), (kinds.FileError, OSError),
                       (kinds.OutOfMemory, MemoryError), (kinds.NoRoom, kinds.FileError)]:
        assert issubclass(kind, base) and issubclass(kind, kinds.Error)
    for name, kind in vars(kinds).items():
        if inspect.isclass(kind):
            assert issubclass(kind, kinds.Error) and kind.__doc__, name
            assert str(pickle.loads(pickle.dumps(kind("what")))) == "what"


def public(module):
    """The public names of a module, with what they are."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


def documented():
    """Every docstring of the package, by the name of what it is of."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("planish", *[part for part in parts if part != "__init__"]))
        if parts[-1] == "__main__" or parts[0] == "torch" and importlib.util.find_spec("torch") is None:
            continue
        module = importlib.import_module(name)
        yield name, module
        for item, value in public(module).items():
            if getattr(value, "__module__", "").split(".")[0] != "planish":
                continue
            yield f"{name}.{item}", value
            if inspect.isclass(value):
                for member, own in vars(value).items():
                    if not member.startswith("_"):
                        yield f"{name}.{item}.{member}", own


EXAMPLES = {name: value.__doc__ for name, value in documented() if ">>>" in (getattr(value, "__doc__", None) or "")}


def check_examples(name, text):
    """Runs the examples of a text."""
    parsed = doctest.DocTestParser().get_doctest(text, {"planish": planish, "numpy": numpy}, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    runner.run(parsed, out=report.append)
    assert parsed.examples and not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_of_docstrings(name):
    check_examples(name, EXAMPLES[name])


def test_examples_of_the_page():
    text = (REPOSITORY / "docs" / "python.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    check_examples("docs/python.md", "\n".join(textwrap.dedent(block) for block in blocks if ">>>" in block))


def test_everything_public_is_documented():
    missing = [name for name, value in documented() if not (getattr(value, "__doc__", None) or "").strip()]
    assert not missing


def declared():
    """What the stub declares: parameters by function, members by class."""
    tree = ast.parse((PACKAGE / "_planish.pyi").read_text())
    names = lambda function: [a.arg for a in function.args.posonlyargs + function.args.args + function.args.kwonlyargs]
    functions = {node.name: names(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {
        node.name: {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in tree.body if isinstance(node, ast.ClassDef)
    }
    return functions, classes, names


def test_the_stub_says_what_there_is():
    functions, classes, names = declared()
    module = importlib.import_module("planish._planish")
    there = {name for name in dir(module) if not name.startswith("__")}
    assert there == set(functions) | set(classes)
    for name, parameters in functions.items():
        assert list(inspect.signature(getattr(module, name)).parameters) == parameters, name
    for name, members in classes.items():
        kind = getattr(module, name)
        is_own = lambda member: not member.startswith("_") or member in ("__call__", "__enter__", "__exit__")
        own = {member for member in vars(kind) if is_own(member)}
        assert own == {member for member in members if is_own(member)}, name
        for member, part in members.items():
            if any(getattr(decorator, "id", "") == "property" for decorator in part.decorator_list):
                assert inspect.isdatadescriptor(vars(kind)[member]), (name, member)
            elif not member.startswith("__"):
                parameters = [p for p in inspect.signature(getattr(kind, member)).parameters if p not in ("self", "inputs", "named", "others")]
                assert parameters == [p for p in names(part) if p not in ("self", "cls", "inputs")], (name, member)
    assert (PACKAGE / "py.typed").exists()
