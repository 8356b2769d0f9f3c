"""Engines one behind the other, as `engine.pipeline(…)` has them."""

from ._planish import Pipeline, Stage
from .errors import BadOption


def chain(first, others, contexts):
    """A pipeline in which each engine reads what the one before it gives."""
    engines = [first, *others]
    names = [f"stage{idx}" for idx in range(len(engines))]
    stages = [Stage(names[0], first, {info.name: info.name for info in first.inputs})]
    for idx, engine in enumerate(engines[1:], 1):
        given = [info.name for info in engines[idx - 1].outputs]
        wanted = [info.name for info in engine.inputs]
        if set(wanted) <= set(given):
            feeds = {name: name for name in wanted}
        elif len(wanted) <= len(given):
            feeds = dict(zip(wanted, given))
        else:
            raise BadOption(f"engine {idx} takes {', '.join(wanted)}, the one before it gives {', '.join(given)}; say planish.Pipeline")
        stages.append(Stage(names[idx], engine, {name: f"{names[idx - 1]}.{value}" for name, value in feeds.items()}))
    outputs = {info.name: f"{names[-1]}.{info.name}" for info in engines[-1].outputs}
    return Pipeline([info.name for info in first.inputs], stages, outputs, contexts=contexts)
