"""Runs beside an event loop."""

import asyncio
import functools


async def run_async(engine, inputs, named):
    """Calls an engine in a thread of the loop's own; the interpreter is free while the model runs."""
    call = functools.partial(engine, *inputs, **(named or {}))
    return await asyncio.get_running_loop().run_in_executor(None, call)
