"""Planish on a local Ray cluster of two nodes: datasets, deployments, and sliding windows with a worker killed in the middle."""

import os
import signal

import numpy as np
import planish
import planish.ray
import psutil
import pytest
import ray
import zarr
from ray.cluster_utils import Cluster

MATRIX = np.arange(32, dtype=np.float32).reshape(8, 4) / 32


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes of one CPU each, and plans that both reach."""
    folder = tmp_path_factory.mktemp("plans")
    weights = lambda n, mod: ",".join(str((idx * 7 % mod - mod // 2) / mod) for idx in range(n))
    volume = f"""graph "g" {{
        input %x: f32[n,1,16,16,16]
        const %w: f32[4,1,3,3,3] = [{weights(108, 11)}]
        const %v: f32[3,4,3,3,3] = [{weights(324, 13)}]
        %h: f32[n,4,16,16,16] = Conv(%x, %w) {{ pads=[1,1,1,1,1,1] }}
        %r: f32[n,4,16,16,16] = Relu(%h)
        %y: f32[n,3,16,16,16] = Conv(%r, %v) {{ pads=[1,1,1,1,1,1] }}
        output %y
    }}"""
    product = f'graph "g" {{ input %x: f32[n,8] const %k: f32[8,4] = [{",".join(str(each) for each in MATRIX.flat)}] %y: f32[n,4] = MatMul(%x, %k) output %y }}'
    for name, text in (("volume", volume), ("product", product)):
        planish.build(planish.Model.parse(text), threads=1, device="cpu", tune_level=0).save(folder / f"{name}.plan")
    numbers = np.random.default_rng(0).random((70, 64, 90)).astype(np.float32)
    zarr.create_array(str(folder / "in.zarr"), shape=numbers.shape, chunks=(32, 32, 32), dtype="f4")[:] = numbers
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    assert len(ray.nodes()) == 2
    yield folder, numbers
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.parametrize("mode,batch,overlap", [("gaussian", 1, 0.5), ("constant", 4, 0.25)])
def test_blocks_are_the_bytes_of_one_machine(cluster, mode, batch, overlap):
    folder, volume = cluster
    told = {"overlap": overlap, "mode": mode, "batch_size": batch}
    wanted = planish.load(folder / "volume.plan", threads=1).sliding_window(volume, roi=16, **told)
    n = planish.ray.sliding_window(folder / "volume.plan", folder / "in.zarr", folder / "out.zarr", 16, windows=3, **told)
    assert n > 4
    assert zarr.open_array(str(folder / "out.zarr"), mode="r")[:].tobytes() == wanted.tobytes()


def test_a_killed_worker_costs_its_block_alone(cluster):
    folder, volume = cluster
    killed, told = [], []

    def kill(done, total):
        told.append(done)
        workers = [process.pid for process in psutil.process_iter(["cmdline"]) if (process.info["cmdline"] or [""])[0].startswith("ray::_block")]
        if done >= 3 and not killed and workers:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    wanted = planish.load(folder / "volume.plan", threads=1).sliding_window(volume, roi=16, overlap=0.5, mode="gaussian", batch_size=1)
    n = planish.ray.sliding_window(folder / "volume.plan", folder / "in.zarr", folder / "again.zarr", 16, overlap=0.5, mode="gaussian", windows=2, progress=kill)
    assert killed and told[-1] == n
    assert zarr.open_array(str(folder / "again.zarr"), mode="r")[:].tobytes() == wanted.tobytes()


def test_datasets(cluster):
    folder, _ = cluster
    rows = np.random.default_rng(1).random((300, 8)).astype(np.float32)
    made = planish.ray.map_batches(ray.data.from_numpy(rows), folder / "product.plan", concurrency=2, batch_size=64, num_cpus=0.4, columns={"x": "data"}).take_all()
    assert len(made) == len(rows)
    np.testing.assert_allclose(np.stack([row["y"] for row in made]), np.stack([row["data"] for row in made]) @ MATRIX, rtol=1e-5)


def test_a_deployment_gathers_requests(cluster):
    from ray import serve

    folder, _ = cluster
    rows = np.random.default_rng(2).random((40, 8)).astype(np.float32)
    handle = serve.run(planish.ray.deployment(folder / "product.plan", max_batch_size=16, batch_wait_timeout_s=0.05, num_cpus=0.4))
    try:
        answers = [handle.remote({"x": row}) for row in rows]
        np.testing.assert_allclose(np.stack([answer.result()["y"] for answer in answers]), rows @ MATRIX, rtol=1e-5)
    finally:
        serve.shutdown()


def test_a_predictor_of_one_batch_size_fills_up(tmp_path):
    text = 'graph "g" { input %x: f32[4,2] %y: f32[4,2] = Neg(%x) output %y }'
    planish.build(planish.Model.parse(text), threads=1, tune_level=0).save(tmp_path / "four.plan")
    predictor = planish.ray.Predictor(tmp_path / "four.plan", keep=[])
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert list(predictor({"x": x, "label": np.arange(6)})) == ["y"]
    np.testing.assert_array_equal(predictor({"x": x})["y"], -x)
    with pytest.raises(planish.errors.WrongInputs, match="column `x`"):
        predictor({"image": x})
