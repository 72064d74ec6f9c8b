"""Scheduler of a simulation: one virtual clock, event loops and threads that it alone advances.

Threads are greenlets. A thread runs until it waits (`Scheduler.pause`, a lock, an executor's result), so what
happens in which order depends on the seed alone. A greenlet whose function has returned runs the function of
a later thread, also of a later schedule: for a new one, the system has to map memory for its frames.
"""

import asyncio
import contextlib
import random
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from math import log
from typing import Any, TypeVar

import greenlet  # type: ignore[import-untyped]

T = TypeVar("T")

getcurrent: Callable[[], greenlet.greenlet] = greenlet.getcurrent

STEP_SECONDS = 0.002
"""Mean time that one step of a thread takes, such as a statement, unless something is slow."""


class Killed(BaseException):
    """The process of this thread has been killed: nothing that it does has an effect any more."""


class Process:
    """A process that may be killed or paused: its loop and its threads stop with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        self.on_kill: list[Callable[[], None]] = []

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        if self.alive:
            self.alive = False
            for callback in self.on_kill:
                callback()


class Handle:
    """A callback of a loop that may be cancelled."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None, when: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        """Never run the callback."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the virtual time at which it runs."""
        return self._when


class Thread(greenlet.greenlet):  # type: ignore[misc]
    """Thread of a simulated process. Once its function has returned, it can run that of another thread."""

    def __init__(self, main: greenlet.greenlet) -> None:
        super().__init__(self._serve, parent=main)
        self.process: Process
        self.function: Callable[[], Any] | None = None
        self.running: set[Thread] = set()
        """Running threads of the schedule that this one belongs to."""

    def _serve(self) -> None:
        main = self.parent
        while self.function is not None:
            with contextlib.suppress(Killed):
                self.function()
            self.function = None
            self.running.discard(self)
            _idle.append(self)
            main.switch()


_idle: list[Thread] = []
"""Threads whose function has returned."""


def end_idle_threads() -> None:
    """End the threads whose function has returned: the next schedule starts new ones."""
    while _idle:
        _idle.pop().switch()


class Scheduler:
    """Runs events in the order of their virtual times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._uniform = self.random.random
        self.now = 0.0
        self.steps = 0
        self.failures: list[str] = []
        """Exceptions that nobody awaited."""
        self.loop_process: Process | None = None
        """Process whose loop runs callbacks now."""
        self._events: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._ready: deque[tuple[float, int, Process | None, Callable[[], None]]] = deque()
        self._threads: set[Thread] = set()
        """Threads that have started and not ended."""
        self._main = greenlet.getcurrent()
        self._end = 0.0
        self._done: Callable[[], bool] | None = None
        self.closed = False
        """Whether the schedule is over: nothing that a thread still does has an effect."""

    def at(self, when: float, run: Callable[[], None], process: Process | None = None) -> None:
        """Call ``run`` at a virtual time; not at all if the process has been killed by then."""
        self.steps += 1
        heappush(self._events, (when, self.steps, process, run))

    def later(self, seconds: float, run: Callable[[], None], process: Process | None = None) -> None:
        """Call ``run`` after a number of virtual seconds."""
        self.at(self.now + seconds, run, process)

    def soon(self, run: Callable[[], None], process: Process | None = None) -> None:
        """Call ``run`` now, after what is to be called now already."""
        self.steps += 1
        self._ready.append((self.now, self.steps, process, run))

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Advance the clock until a time, or until ``done``; return whether it is done.

        ``done`` only reads: it is called after each event.
        """
        events, ready = self._events, self._ready
        self._end, self._done = end, done
        while True:
            if ready:
                when, number, process, run = ready.popleft()
            elif events and events[0][0] <= end:
                when, number, process, run = heappop(events)
            else:
                break
            if process is not None:
                if not process.alive:
                    continue
                if process.paused_until > when:
                    heappush(events, (process.paused_until, number, process, run))
                    continue
            if when > self.now:
                self.now = when
            run()
            if done is not None and done():
                return True
        self.now = max(self.now, end)
        return done is not None and done()

    def close(self) -> None:
        """End all threads; nothing that they still do has an effect."""
        self.closed = True
        self._events.clear()
        self._ready.clear()
        # The collector does not look into the stack of a greenlet: one that waits would stay for ever.
        while self._threads:
            self._threads.pop().throw(Killed)

    # ---------------------------------------------------------------------------------------- threads

    def start_thread(self, process: Process, function: Callable[[], Any]) -> None:
        """Start a thread of a process; it takes its first step after a moment."""
        self.steps += 1
        when = self.now - STEP_SECONDS * log(1.0 - self._uniform())
        begin: Callable[[], None] = partial(self._begin, process, function)
        heappush(self._events, (when, self.steps, process, begin))

    def _begin(self, process: Process, function: Callable[[], Any]) -> None:
        thread = _idle.pop() if _idle else Thread(self._main)
        thread.process, thread.function, thread.running = process, function, self._threads
        self._threads.add(thread)
        thread.switch()

    def current_thread(self) -> Thread:
        """Return the thread that runs now."""
        thread = getcurrent()
        assert isinstance(thread, Thread)
        return thread

    def current_process(self) -> Process:
        """Return the process whose thread or loop runs now."""
        thread = getcurrent()
        if isinstance(thread, Thread):
            return thread.process
        assert self.loop_process is not None
        return self.loop_process

    def check_alive(self) -> None:
        """Raise Killed if the current thread's process has been killed, or the simulation is over."""
        thread = getcurrent()
        if isinstance(thread, Thread):
            self._check(thread.process)

    def pause(self, seconds: float | None = None) -> None:
        """Let others run, for some virtual seconds or for a moment; a callback of a loop goes on at once."""
        thread = getcurrent()
        if not isinstance(thread, Thread):
            return
        process = thread.process
        if self.closed or not process.alive:
            raise Killed
        when = self.now + (-STEP_SECONDS * log(1.0 - self._uniform()) if seconds is None else seconds)
        self.steps += 1
        events = self._events
        if (
            not self._ready
            and when <= self._end
            and (not events or when < events[0][0])
            and process.paused_until <= when
            and (self._done is None or not self._done())
        ):
            self.now = when  # it is the next one that the scheduler would run
            return
        heappush(events, (when, self.steps, process, thread.switch))
        self._main.switch()
        self._check(process)

    def _check(self, process: Process) -> None:
        if self.closed or not process.alive:
            raise Killed

    def wait(self, resume: Callable[[Callable[[], None]], None]) -> None:
        """Stop the current thread until the function that ``resume`` is given is called."""
        thread = getcurrent()
        assert isinstance(thread, Thread)
        self.check_alive()
        waiting = True

        def wake() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self.soon(thread.switch, thread.process)

        resume(wake)
        self._main.switch()
        self.check_alive()


class Loop:
    """Event loop of one simulated process, with the parts of asyncio's interface that the service uses."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self.scheduler = scheduler
        self.process = process
        self.default_executor = Executor(self, 32)
        self._ready: deque[Handle] = deque()
        self._scheduled = False
        # Only the task holds its coroutine: without this, a task that waits could be collected.
        self.tasks: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        return self.scheduler.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.process.alive and not isinstance(context.get("exception"), Killed):
            self.scheduler.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        scheduler = self.scheduler
        handle = Handle(callback, args, context, scheduler.now)
        self._ready.append(handle)
        if not self._scheduled:
            self._scheduled = True
            scheduler.soon(self._run_ready, self.process)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.scheduler.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context, when)
        self.scheduler.at(when, partial(self._due, handle), self.process)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=_any(self), **options)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return (executor or self.default_executor).run(func, args)

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task from outside of the loop."""
        _set_running_loop(_any(self))
        self.scheduler.loop_process = self.process
        try:
            return self.create_task(work)
        finally:
            _set_running_loop(None)

    def _due(self, handle: Handle) -> None:
        if not handle.is_cancelled:
            self._ready.append(handle)
            self._run_ready()

    def _run_ready(self) -> None:
        self._scheduled = False
        ready, process = self._ready, self.process
        _set_running_loop(_any(self))
        self.scheduler.loop_process = process
        try:
            while ready and process.alive:
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                if handle.context is None:
                    handle.callback(*handle.args)
                else:
                    handle.context.run(handle.callback, *handle.args)
        finally:
            _set_running_loop(None)


class Executor:
    """Threads that run functions for a loop: at most ``workers`` at a time, the others wait in order."""

    def __init__(self, loop: Loop, workers: int) -> None:
        self._loop = loop
        self._free = workers
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = deque()

    def run(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> asyncio.Future[T]:
        """Call the function in a thread; the future is resolved in the loop."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._free:
            self._free -= 1
            self._loop.scheduler.start_thread(
                self._loop.process, partial(self._work, function, arguments, future)
            )
        else:
            self._waiting.append((function, arguments, future))
        return future

    def shutdown(self, wait: bool = True) -> None:
        """Do nothing: what was given runs on."""

    def _work(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        try:
            result = function(*arguments)
        except Exception as error:
            self._loop.call_soon(_fail, future, error)
        else:
            self._loop.call_soon(_resolve, future, result)
        if self._waiting:
            following = partial(self._work, *self._waiting.popleft())
            self._loop.scheduler.start_thread(self._loop.process, following)
        else:
            self._free += 1


def _any(loop: Loop) -> Any:
    """Return a loop as asyncio's functions take it: it has the methods that they call."""
    return loop


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
