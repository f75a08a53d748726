"""What trackers' own packages read of a run, beside the run's metrics.jsonl:

    track.py tensorboard RUN | prometheus FILE
    track.py mlflow URI RUN STATUS [killed]
    track.py registry URI RUN VERSIONS

Each step has to be there once, with the loss that the run has written. Of a run
that was killed a server may lack the few steps that were on their way."""
import json
import math
import os
import sys


def lines(run, name):
    with open(os.path.join(run, name)) as file:
        return [json.loads(line) for line in file]


def wanted(run, key="loss", name="metrics.jsonl"):
    """By step; a step that came again has the same loss."""
    out = {}
    for line in lines(run, name):
        if key in line:
            assert out.setdefault(line["step"], line[key]) == line[key]
    return out


def same(got, want, digits=6):
    steps = [step for step, _ in got]
    assert steps == sorted(want), (steps, sorted(want))
    for step, value in got:
        assert math.isclose(value, want[step], rel_tol=10.0 ** -digits), step
    return len(got)


def tensorboard(run):
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.util import tensor_util

    folder = os.path.join(run, "tensorboard")
    old = event_accumulator.EventAccumulator(
        folder, size_guidance={"scalars": 0}, purge_orphaned_data=True)
    old.Reload()
    names = old.Tags()["scalars"]
    count = same([(e.step, e.value) for e in old.Scalars("train/loss")],
                 wanted(run))
    same([(e.step, e.value) for e in old.Scalars("eval/loss")],
         wanted(run, "eval_loss", "eval.jsonl"))
    # what the server reads by
    new = plugin_event_accumulator.EventAccumulator(
        folder, tensor_size_guidance={"scalars": 0}, purge_orphaned_data=True)
    new.Reload()
    same([(e.step, tensor_util.make_ndarray(e.tensor_proto).item())
          for e in new.Tensors("train/loss")], wanted(run))
    texts = 0
    for tag in new.PluginTagToContent("text"):
        shown = {(e.step, e.tensor_proto.string_val[0].decode())
                 for e in new.Tensors(tag)}
        for line in lines(run, "samples.jsonl"):
            if tag != "samples/%d" % line["number"]:
                continue
            text = "    " + (line["prompt"] + line["text"]).replace("\n", "\n    ")
            assert (line["step"], text) in shown, (line, shown)
            texts += 1
    print("%d steps of %d numbers, %d texts" % (count, len(names), texts))


def prometheus(path):
    from prometheus_client.parser import text_string_to_metric_families
    with open(path) as file:
        families = list(text_string_to_metric_families(file.read()))
    values = {f.name: f.samples[0].value for f in families}
    assert all(f.type == "gauge" and len(f.samples) == 1 and
               set(f.samples[0].labels) == {"run", "job"} for f in families)
    assert values["tessera_step"] == 24 and values["tessera_running"] == 0
    assert 0 < values["tessera_train_loss"] < 20
    print("%d gauges" % len(families))


def lacking(got, want):
    """`want` without what `got` lacks, which is few steps in a row."""
    there = {step for step, _ in got}
    lost = sorted(step for step in want if step not in there)
    assert len(lost) <= 30 and (
        not lost or lost[-1] - lost[0] == len(lost) - 1), lost
    return {step: want[step] for step in there}, len(lost)


def mlflow(uri, run, status, killed=None):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("a first try")
    runs = [r for r in client.search_runs([experiment.experiment_id])
            if r.info.run_name == os.path.basename(run)]
    assert len(runs) == 1, runs
    run_id = runs[0].info.run_id
    assert runs[0].info.status == status, runs[0].info.status
    with open(os.path.join(run, "tracking.json")) as file:
        assert json.load(file)["mlflow"]["run_id"] == run_id
    history = client.get_metric_history(run_id, "train/loss")
    got = [(m.step, m.value) for m in history]
    want, lost = lacking(got, wanted(run)) if killed else (wanted(run), 0)
    count = same(got, want, 8)
    if not killed:
        same([(m.step, m.value) for m in
              client.get_metric_history(run_id, "eval/loss")],
             wanted(run, "eval_loss", "eval.jsonl"), 8)
    params = runs[0].data.params
    assert params["train.global_batch"] == "8" and len(params) > 50, params
    print("%d steps of %d metrics, %d settings; %d steps lost"
          % (count, len(runs[0].data.metrics), len(params), lost))


def registry(uri, run, count):
    """Versions of the run's model, of which the newest is the best checkpoint."""
    from mlflow.tracking import MlflowClient
    with open(os.path.join(run, "tracking.json")) as file:
        run_id = json.load(file)["mlflow"]["run_id"]
    versions = sorted(MlflowClient(uri).search_model_versions(
        "name='my model' and run_id='%s'" % run_id), key=lambda v: int(v.version))
    assert len(versions) == int(count), versions
    for version in versions:
        folder = version.tags["tessera.checkpoint"]
        assert version.source == "tessera://" + folder and version.status == "READY"
        assert os.path.exists(os.path.join(folder, "MANIFEST.json")), folder
        assert folder.endswith("step-%09d" % int(version.tags["tessera.step"]))
    losses = wanted(run, "eval_loss", "eval.jsonl")
    best = min(losses, key=lambda step: (losses[step], -step))
    assert versions[-1].tags["tessera.step"] == str(best), (versions[-1], losses)
    print("%s versions, the last is step %d" % (count, best))


def main(what, *arguments):
    {"tensorboard": tensorboard, "prometheus": prometheus,
     "mlflow": mlflow, "registry": registry}[what](*arguments)


main(*sys.argv[1:])
