"""Modules over engines, modules as plans, and the backend of torch.compile, against PyTorch itself."""

import logging
import pickle
import subprocess
import sys
import textwrap

import planish
import planish.testing
import planish.torch
import pytest
import torch
from torch import nn
from torch.nn import functional as F

#: Sums in another order: relative to the largest output.
TOLERANCE = 1e-5

RELU = 'graph "relu" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }'
TWO = 'graph "two" { input %x: f32[n] %p: f32[n] = Relu(%x) %m: f32[n] = Neg(%x) output %p, %m }'

#: Builds that measure nothing, and are not kept.
QUICK = {"tune_level": 0, "threads": 1, "cache": False}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Files go to a folder that is thrown away, and dynamo forgets what it compiled."""
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    torch.manual_seed(0)


def same(got, wanted):
    """That outputs agree."""
    got, wanted = (value if isinstance(value, (tuple, list)) else [value] for value in (got, wanted))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert (a - b).abs().max() <= TOLERANCE * max(1.0, float(b.abs().max()))


def compiled(model, **options):
    """A model compiled by Planish."""
    dynamic = options.pop("dynamic", None)
    return torch.compile(model, backend="planish", dynamic=dynamic, options={**QUICK, **options})


class Images(nn.Module):
    """Convolutions, norms, pools and resizes."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.up, self.groups, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.GroupNorm(2, 8), nn.Linear(8, 4)

    def forward(self, x):
        y = F.max_pool2d(F.relu6(self.norm(self.first(x))), 2)
        y = F.hardswish(F.silu(self.groups(self.up(y))))
        enlarged = F.interpolate(y, scale_factor=2, mode="bilinear"), F.interpolate(y, scale_factor=2)
        return self.last(F.adaptive_avg_pool2d(y, 1).flatten(1)), *enlarged, F.avg_pool2d(y, 3, padding=1)


class Words(nn.Module):
    """Embeddings, attention, norms and products."""

    def __init__(self, size=16, heads=2):
        super().__init__()
        self.heads = heads
        self.words, self.norm = nn.Embedding(30, size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, ids, mask):
        x = self.norm(self.words(ids))
        batch, length, size = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        added = torch.where(mask[:, None, None, :], 0.0, float("-inf"))
        made = F.scaled_dot_product_attention(*split.unbind(0), attn_mask=added)
        return x + F.gelu(self.out(made.transpose(1, 2).reshape(batch, length, size)))


def words(batch, length):
    """Inputs of `Words`."""
    return torch.randint(0, 30, (batch, length)), torch.arange(length)[None] < torch.randint(1, length + 1, (batch, 1))


def test_a_module_over_an_engine():
    planish.build(planish.Model.parse(RELU), **QUICK).save("relu.plan")
    module = planish.torch.load("relu.plan")
    x = torch.tensor([[-1.0, 2, -3, 4]], requires_grad=True)
    pipeline = nn.Sequential(nn.Identity(), module)
    y = pipeline.eval()(x)
    assert isinstance(y, torch.Tensor) and y.tolist() == [[0, 2, 0, 4]] and not y.requires_grad
    assert module(x=x.detach()).tolist() == y.tolist()
    assert module.engine.copies == 0
    assert list(module.parameters()) == []
    with pytest.raises(planish.errors.BadOption, match="inference"):
        module.train()
    again = pickle.loads(pickle.dumps(module))
    assert again(x).tolist() == y.tolist()
    both = planish.torch.Module(planish.build(planish.Model.parse(TWO), **QUICK), names=True)(torch.ones(2))
    assert {name: value.tolist() for name, value in both.items()} == {"p": [1, 1], "m": [-1, -1]}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_whole_graph_is_one_part(dynamic):
    model = Images().eval()
    run = compiled(model, dynamic=dynamic, strict=True)
    with torch.no_grad():
        for batch in (2, 3) if dynamic else (2,):
            x = torch.randn(batch, 3, 12, 16)
            same(run(x), model(x))
    report = planish.torch.reports()[-1]
    assert len(report) == 0 and report.n_taken == report.n_nodes > 10 and len(report.plans) == 1
    # Weights are part of the plan, where kernels find them packed.
    assert len(report.plans[0].engine().inputs) == 1


def test_sizes_that_change_make_one_more_graph():
    model = Words().eval()
    run, before = compiled(model, strict=True), len(planish.torch.reports())
    with torch.inference_mode():
        for batch, length in [(2, 5), (3, 7), (4, 9), (5, 11)]:
            inputs = words(batch, length)
            same(run(*inputs), model(*inputs))
    assert len(planish.torch.reports()) - before <= 2


class Sorted(nn.Module):
    """What Planish has no rule for, between what it has."""

    def forward(self, x):
        y = torch.exp(x) + 1
        order = torch.sort(y, dim=1).indices
        return torch.sigmoid(y.gather(1, order)) * 2


def test_what_is_not_supported_stays_and_is_listed(caplog):
    run, x = compiled(Sorted()), torch.randn(3, 5)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "planish.torch"):
        same(run(x), Sorted()(x))
    report = planish.torch.reports()[-1]
    assert [row.operator for row in report] == ["aten.sort.default"] and report[0].reason
    assert len(report.plans) == 2 and report.n_taken == report.n_nodes - 1
    assert "aten.sort.default" in caplog.text and "no rule" in str(report) and "<table>" in report._repr_html_()
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="strict"):
        compiled(Sorted(), strict=True)(x)


def test_gradients_are_left_to_pytorch(caplog):
    model = nn.Linear(4, 2)
    with caplog.at_level(logging.WARNING, "planish.torch"):
        compiled(model)(torch.randn(3, 4)).sum().backward()
    assert model.weight.grad is not None and "gradients are wanted" in caplog.text


def test_weights_that_change_are_seen():
    model, x = nn.Linear(4, 2).eval(), torch.randn(3, 4)
    run = compiled(model)
    with torch.no_grad():
        same(run(x), model(x))
        model.weight.mul_(2)
        same(run(x), model(x))
        model.bias = nn.Parameter(torch.ones(2))
        same(run(x), model(x))
        for _ in range(5):
            model.weight.add_(1)
            same(run(x), model(x))


def test_views_after_a_part_find_the_strides_that_they_were_traced_with():
    class Turned(nn.Module):
        def forward(self, x):
            y = torch.exp(x).transpose(1, 2)
            order = torch.sort(y, dim=2).values
            return order.transpose(1, 2).reshape(-1), y

    run, x = compiled(Turned()), torch.randn(2, 3, 5)
    with torch.no_grad():
        same(run(x), Turned()(x))


def test_unknown_options_are_refused():
    with torch.no_grad(), pytest.raises(Exception, match="`fast` is no option of the backend"):
        torch.compile(nn.ReLU(), backend="planish", options={"fast": 1})(torch.ones(2))


def test_plans_are_found_again_by_another_process(tmp_path):
    script = textwrap.dedent("""
        import torch, planish.torch
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
        torch.nn.init.ones_(model[0].weight); torch.nn.init.zeros_(model[0].bias)
        with torch.no_grad():
            torch.compile(model, backend="planish", options={"threads": 1})(torch.ones(2, 64))
        print(*planish.torch.reports()[-1].plans[0].notes, planish.torch.reports()[-1].plans[0].fingerprint)
    """)
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    runs = [subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True) for _ in range(2)]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    assert runs[0].stdout.split()[-1] == runs[1].stdout.split()[-1]
    assert any(path.suffix == ".plan" for path in tmp_path.rglob("*")), list(tmp_path.rglob("*"))


def test_modules_are_built_through_onnx(capsys):
    model, x = Images().eval(), torch.randn(2, 3, 12, 16)
    engine = planish.build(model, x, tune_level=0, threads=1).engine()
    with torch.no_grad():
        same(engine(x), model(x))
    hops = planish.export(model, (x,), "images.onnx", check=True, tune_level=0, threads=1)
    shown = capsys.readouterr().out
    assert "module to torch.export" in shown and "ONNX to plan" in shown
    assert len(hops) == 12 and hops.worst < TOLERANCE
    assert planish.Model("images.onnx").inputs[0].shape == (2, 3, 12, 16)
    found = planish.testing.compare(model, "images.onnx", planish.build("images.onnx", **QUICK), inputs={"x": x})
    assert found.check().passed and len(found) == 8
    batch = torch.export.Dim("batch", min=1, max=64)
    open_plan = planish.build(model, (x,), dynamic_shapes=({0: batch},), tune_level=0, threads=1)
    more = torch.randn(5, 3, 12, 16)
    with torch.no_grad():
        same(open_plan.engine()(more), model(more))


def test_modules_that_cannot_be_exported_say_so():
    with pytest.raises(planish.errors.BadModel, match="training mode"):
        planish.build(Images(), torch.randn(1, 3, 8, 8))

    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(planish.errors.BadModel, match="torch.onnx does not export"):
        planish.build(Branches().eval(), torch.ones(2))
