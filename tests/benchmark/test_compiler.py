"""The compiler waits in processes of our own, and is the real one as soon as somebody compiles."""

import subprocess
import sys

BEFORE = "import sys; import benchmark.cli; from benchmark import compiler; import lightning, torch\n"


def _said(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", BEFORE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_cell_is_trained_and_swept_without_it() -> None:
    code = """
import tempfile
with tempfile.TemporaryDirectory() as folder:
    code = benchmark.cli.main(["run", "--methods", "concat", "--datasets", "digit_halves", "--seeds", "1", "--workers",
        "0", "--set", "recipe.epochs=1", "--no-baselines", "--quiet", "--results", folder])
print("code", code, compiler.waits(), "sympy" in sys.modules)
"""
    assert _said(code)[-4:] == ["code", "0", "True", "False"]


def test_who_compiles_has_the_real_one() -> None:
    """A function that an optimizer had kept from being compiled still is; Lightning knows the compiled module."""
    code = """
from lightning.fabric.wrappers import _unwrap_compiled
layer = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
optimizer.step()
print(compiler.waits(), _unwrap_compiled(layer)[0] is layer)
compiled = torch.compile(layer, backend="eager")
x = torch.ones(3, 2)
print(compiler.waits(), torch.equal(compiled(x), layer(x)), _unwrap_compiled(compiled)[0] is layer)
print(type(compiled).__module__, isinstance(compiled, compiler.OptimizedModule))
optimizer.zero_grad(); compiled(x).sum().backward(); optimizer.step()
print(float(layer.weight.grad.sum()))
"""
    assert _said(code) == [
        *("True", "True"), *("False", "True", "True"), *("torch._dynamo.eval_frame", "True"), "6.0",
    ]  # fmt: skip


def test_who_imports_a_part_of_it_has_all_of_it() -> None:
    code = """
import torch._dynamo.config
print(compiler.waits(), torch._dynamo.config.__name__, hasattr(torch._dynamo, "optimize"))
"""
    assert _said(code) == ["False", "torch._dynamo.config", "True"]


def test_a_question_it_alone_can_answer_imports_it() -> None:
    assert _said("print(callable(torch._dynamo.reset), compiler.waits())") == ["True", "False"]


def test_a_notebook_has_it_from_the_start() -> None:
    code = "import sys, lightning; print('torch._dynamo.eval_frame' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
