"""The two walks of the architecture, walked: one request from a workload line to the report, and one through the
engine from its bytes to the release of its blocks. Each named function must be met, and in this order.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from aiohttp import web

from benchlab.campaign import stages as campaign_stages
from benchlab.campaign.finish import store_records, write_items
from benchlab.campaign.probe import ask_models, choose_model
from benchlab.campaign.spec import Load, RunSpec, Warmup
from benchlab.clients.endpoint import parse_endpoint
from benchlab.clients.exchange import StreamExchange
from benchlab.clients.native import NativeClient
from benchlab.clients.openai import OpenAI
from benchlab.clients.stamps import Stamps
from benchlab.clock import SystemClock
from benchlab.loadgen import arrivals
from benchlab.loadgen.counters import CounterPage
from benchlab.loadgen.driver import Driver, StageRun
from benchlab.loadgen.open_loop import OpenLoop
from benchlab.loadgen.worker import make_plan
from benchlab.metrics import summary as metrics_summary
from benchlab.metrics import table, window
from benchlab.records import spool, store
from benchlab.records.recorder import Recorder
from benchlab.records.spool import Spool
from benchlab.records.store import Run, write_manifest
from benchlab.report import export
from benchlab.selection import judge as selection_judge
from benchlab.selection import pick as selection_pick
from benchlab.selection.slo import parse_objective
from benchlab.workload import read as workload_read
from benchlab.workload import rows
from benchlab_engine.core import admission, blocks, loop, scheduler
from benchlab_engine.serve import answer, app, build, events_openai, gauges, mailbox, options, tokens, wire_openai
from benchlab_engine.sim import runner as sim_runner
from tests.made_runs import made_manifest
from tests.running import paced_engine

Step = tuple[str, str, Callable[..., Any]]
"""What the walk calls it, when it counts ("call": as it begins, "return": once it has its result), the function."""

COLLECTING: list[Step] = [
    ("workload line", "call", rows.parse_object),
    ("WorkloadItem", "return", rows.to_item),
    ("read_items", "return", workload_read.read_items),
    ("arrival times", "return", arrivals.arrival_times),
    ("load plan", "return", campaign_stages.plan_stages),
    ("due", "return", OpenLoop.take),
    ("dispatch", "call", StageRun._dispatch),
    ("begun", "call", Spool.begin),
    ("client stream", "call", NativeClient.stream),
    ("event", "call", StreamExchange.body),
    ("chunk", "call", Recorder.chunk),
    ("end", "call", Recorder.end),
    ("Record", "return", Recorder.record),
    ("spool", "call", Spool.add),
    ("merge", "return", spool.merge),
    ("requests.parquet", "return", store.write_parquet),
]
JUDGING: list[Step] = [
    ("requests.parquet", "call", Run.requests),
    ("window", "return", window.window_of),
    ("metrics table", "call", table.measure),
    ("Summary", "return", metrics_summary.summarise),
    ("Pick", "return", selection_pick.pick),
    ("judge", "return", selection_judge.judge),
    ("report", "return", export.write_report),
]
ENGINE: list[Step] = [
    ("HTTP request", "call", app.Server._answer),
    ("wire.parse", "return", wire_openai.parse),
    ("tokens.encode", "return", tokens.ByteVocabulary.encode_chat),
    ("mailbox", "call", mailbox.Mailbox.submit),
    ("admission", "return", admission.refuse),
    ("waiting", "call", scheduler.Scheduler.submit),
    ("loop.step", "call", loop.Engine.step),
    ("scheduler.plan", "call", scheduler.Scheduler.plan),
    ("block pool", "call", blocks.BlockPool.take),
    ("StepPlan", "return", scheduler.Scheduler.plan),
    ("runner.execute", "return", sim_runner.PacedRunner.execute),
    ("scheduler.settle", "call", scheduler.Scheduler.settle),
    ("news", "call", mailbox.Mailbox._deliver),
    ("detokenise", "return", tokens.ByteStream.push),
    ("SSE chunk", "return", events_openai.OpenAiEvents.token),
    ("blocks released", "call", blocks.BlockPool.release),
]


@contextmanager
def traced(steps: list[Step]) -> Iterator[list[str]]:
    """The names of the steps in the order in which they are first met, in this thread and those started inside."""
    wanted: dict[tuple[Any, str], str] = {(inspect.unwrap(f).__code__, event): name for name, event, f in steps}
    seen: list[str] = []

    def look(frame: FrameType, event: str, arg: object) -> None:
        name = wanted.get((frame.f_code, event))
        if name is not None and name not in seen:
            seen.append(name)

    before, before_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        threading.setprofile(before_threads)  # type: ignore[arg-type]


def names(steps: list[Step]) -> list[str]:
    return [name for name, _, _ in steps]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with paced_engine("ttft=20ms,itl=5ms") as where:
        yield where


def test_harness_walk(url: str, tmp_path: Path) -> None:
    workload, run_path = tmp_path / "one.jsonl", tmp_path / "run"
    line = {"id": "hello", "messages": [{"role": "user", "content": "Say hello."}], "output_tokens": 4}
    workload.write_text(json.dumps(line) + "\n")
    (run_path / "spool").mkdir(parents=True)
    clock = SystemClock()
    t0_ns = clock.monotonic_ns()

    with traced(COLLECTING) as collected:
        read = workload_read.read_items(workload)
        load = Load("open", rate=20.0)
        spec = RunSpec(loads=(load,), data=workload, url=url, requests=1, warmup=Warmup())
        [stage] = campaign_stages.plan_stages(spec, read.items)
        start_ns = clock.monotonic_ns() + 20_000_000
        [job] = campaign_stages.slices(stage, spec, start_ns=start_ns, offset=0)

        async def send() -> None:
            endpoint = parse_endpoint(url)
            model = choose_model(None, ask_models(endpoint, {}), endpoint)
            client = NativeClient(endpoint, OpenAI("chat", model, {}), clock=clock, stamps=Stamps(clock))
            page = CounterPage(run_path / "spool" / "page", create=True)
            kept = Spool(run_path / "spool", 0)
            driver = Driver(
                client,
                item_at=lambda position: read.items[position % len(read.items)],
                spool=kept,
                counters=page,
                clock=clock,
                t0_ns=t0_ns,
                worker=0,
                host="here",
                keep_text=False,
            )
            await driver.run(job, make_plan(job))
            kept.close()
            await client.close()
            page.close()

        asyncio.run(send())
        requests = store_records(run_path, keep_text=False, why_unfinished="")
    assert collected == names(COLLECTING)

    [row] = requests.to_pylist()
    assert (row["item_id"], row["outcome"], row["output_tokens"]) == ("hello", "ok", 4)
    assert row["intended_ns"] <= row["dispatched_ns"] <= row["sent_ns"] <= row["chunk_ns"][0] <= row["end_ns"]

    entry = campaign_stages.manifest_entry(stage, spec)
    whole = start_ns - t0_ns
    entry |= {"start_ns": whole, "w0_ns": whole, "w1_ns": row["end_ns"] + 1, "drain_end_ns": row["end_ns"] + 1}
    entry |= {"complete": True, "why": None}
    write_items(run_path, [])
    write_manifest(run_path, made_manifest([], "walk") | {"stages": [entry]})
    with traced(JUDGING) as judged:
        run = Run(run_path)
        summary = selection_judge.judge(run, objectives=[parse_objective("ttft.p50<=10s")])
        export.write_report(run, summary, run_path / "report.html")
    assert judged == names(JUDGING)
    [figures] = summary["stages"]
    assert figures["outcomes"]["ok"] == figures["attempted"] == 1
    assert figures["metrics"]["ttft"]["p50"] == pytest.approx((row["chunk_ns"][1] - row["sent_ns"]) / 1e6, abs=50)
    assert "hello" in (run_path / "report.html").read_text() or "s0-0" in (run_path / "report.html").read_text()


def test_engine_walk() -> None:
    parser = ArgumentParser()
    options.add_arguments(parser)
    given = options.read(parser.parse_args(["--model", "tiny", "--runner", "paced:ttft=5ms,itl=10ms", "--port", "0"]))
    built = build.build(given)
    meters = gauges.Gauges(built.engine.scheduler, {})
    box = mailbox.Mailbox(built.engine, meters)
    server = app.Server(app.Face(), answer.Desk(built.name, built.vocabulary, box, meters))
    body = {"model": built.name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}

    async def ask() -> bytes:
        runner = web.AppRunner(server.application(), handler_cancellation=True)
        await runner.setup()
        box.start(asyncio.get_running_loop())
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            await web.SockSite(runner, listener).start()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            data = json.dumps(body).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}"
            writer.write(head.encode() + b"\r\n\r\n" + data)
            everything = await reader.read()
            writer.close()
            await writer.wait_closed()
            await runner.cleanup()
        return everything

    # The pace is slow enough that an answer's first event is out before its last step releases the blocks.
    with traced(ENGINE) as seen:
        try:
            everything = asyncio.run(ask())
        finally:
            box.stop()
    assert b"data: [DONE]" in everything
    assert seen == names(ENGINE)
    built.engine.scheduler.audit()
    assert not built.engine.scheduler.requests
