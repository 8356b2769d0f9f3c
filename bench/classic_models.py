"""Models of scikit-learn as skl2onnx exports them (domain ai.onnx.ml): plans against ONNX Runtime, output by output.

    python bench/classic_models.py [--planish target/release/planish] [--only forest]

Each model is trained on a data set that scikit-learn carries, exported, built at tune level 0 and run on the rows it was trained
on. Classes must be the same in every row, other numbers within 1e-5 of the largest. Needs scikit-learn, skl2onnx, onnxruntime
and numpy; exit code 1 if something differs.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from sklearn import datasets, ensemble, impute, linear_model, naive_bayes, neighbors, neural_network, preprocessing, svm, tree
from sklearn.pipeline import make_pipeline

WITHIN = 1e-5

IRIS = datasets.load_iris(return_X_y=True)
CANCER = datasets.load_breast_cancer(return_X_y=True)
DIABETES = datasets.load_diabetes(return_X_y=True)
WINE = datasets.load_wine(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
NAMED = (IRIS[0], NAMES[IRIS[1]])


def scaled(model, *before):
    return make_pipeline(*before, preprocessing.StandardScaler(), model)


MODELS = {
    "tree": (tree.DecisionTreeClassifier(random_state=0), CANCER),
    "forest": (ensemble.RandomForestClassifier(30, random_state=0), CANCER),
    "forest, classes by name": (ensemble.RandomForestClassifier(20, random_state=0), NAMED),
    "forest, regression": (ensemble.RandomForestRegressor(30, random_state=0), DIABETES),
    "extra trees": (ensemble.ExtraTreesClassifier(20, random_state=0), WINE),
    "boosting, two classes": (ensemble.GradientBoostingClassifier(n_estimators=30, random_state=0), CANCER),
    "boosting, three classes": (ensemble.GradientBoostingClassifier(n_estimators=15, random_state=0), WINE),
    "boosting, regression": (ensemble.GradientBoostingRegressor(n_estimators=30, random_state=0), DIABETES),
    "AdaBoost": (ensemble.AdaBoostClassifier(n_estimators=10, random_state=0), IRIS),
    "isolation forest": (ensemble.IsolationForest(n_estimators=10, random_state=0), IRIS),
    "logistic regression": (scaled(linear_model.LogisticRegression(max_iter=500)), CANCER),
    "logistic regression, classes by name": (scaled(linear_model.LogisticRegression(max_iter=500)), NAMED),
    "imputer": (scaled(linear_model.LogisticRegression(max_iter=500), impute.SimpleImputer()), CANCER),
    "ridge": (linear_model.Ridge(), DIABETES),
    "SVC": (scaled(svm.SVC()), IRIS),
    "SVC, linear": (scaled(svm.SVC(kernel="linear")), CANCER),
    "SVC, polynomial": (scaled(svm.SVC(kernel="poly")), NAMED),
    "SVR": (scaled(svm.SVR()), DIABETES),
    "one class": (scaled(svm.OneClassSVM()), IRIS),
    "neighbours": (neighbors.KNeighborsClassifier(), IRIS),
    "neighbours, regression": (neighbors.KNeighborsRegressor(), DIABETES),
    "naive Bayes": (naive_bayes.GaussianNB(), IRIS),
    "MLP": (scaled(neural_network.MLPClassifier((16,), max_iter=200, random_state=0)), WINE),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planish", default="target/release/planish")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    planish = str(pathlib.Path(args.planish).resolve())
    warnings.filterwarnings("ignore")
    n_wrong = 0
    for name, (model, (rows, classes)) in MODELS.items():
        if args.only not in name:
            continue
        rows = rows.astype(np.float32)
        model.fit(rows, classes)
        exported = to_onnx(model, rows[:1], target_opset={"": 18, "ai.onnx.ml": 3}).SerializeToString()
        with tempfile.TemporaryDirectory() as folder:
            found = held(planish, pathlib.Path(folder), exported, rows)
        n_wrong += found.startswith("WRONG")
        print(f"{name:<38} {found}", flush=True)
    sys.exit(1 if n_wrong else 0)


def held(planish, folder, exported, rows):
    """What the plan's outputs are beside ONNX Runtime's."""
    (folder / "m.onnx").write_bytes(exported)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    feed = session.get_inputs()[0].name
    want = session.run(None, {feed: rows})
    np.savez(folder / "in.npz", **{feed: rows})
    shapes = f"{feed}:{'x'.join(map(str, rows.shape))}"
    build = [planish, "build", "m.onnx", "-o", "m.plan", "--device", "cpu", "--tune-level", "0", "--shapes", shapes]
    run = [planish, "run", "m.plan", "--inputs", "in.npz", "-o", "out.npz"]
    slow = ""
    for command in (build, run):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            return "WRONG: " + (done.stderr or done.stdout).strip().splitlines()[-1]
        slow += " ".join(line for line in done.stdout.splitlines() if line.startswith("slow"))
    made = np.load(folder / "out.npz")
    found = [one(made[output.name], theirs) for output, theirs in zip(session.get_outputs(), want)]
    wrong = "WRONG: " if any(text.startswith("!") for text in found) else ""
    return wrong + ", ".join(found) + ("  " + slow if slow else "")


def one(own, theirs):
    if isinstance(theirs, list):
        # ZipMap's maps, and names of classes, are columns and places in a plan.
        theirs = np.array([list(row.values()) if isinstance(row, dict) else row for row in theirs])
    if theirs.dtype.kind in "OU":
        theirs = np.searchsorted(NAMES, theirs.astype(str))
    if own.shape != theirs.shape:
        return f"! shape {own.shape} instead of {theirs.shape}"
    if theirs.dtype.kind in "iu":
        n_other = int((own != theirs).sum())
        return f"! {n_other} classes differ" if n_other else "same classes"
    error = float(np.abs(own - theirs).max() / max(1e-9, np.abs(theirs).max()))
    return f"{'' if error <= WITHIN else '! '}{error:.1e}"


if __name__ == "__main__":
    main()
