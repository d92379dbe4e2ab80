"""The engine in this process, for asyncio programs."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, overload

from . import _native
from ._answers import output_delta, request_output
from ._check import no_pickle
from ._options import OptionValue
from ._readers import Readers
from ._requests import (
    Asked,
    Messages,
    Params,
    Places,
    Prompt,
    Wholes,
    chat,
    completion,
    one_params,
    places_of,
    prepare_all,
    set_priorities,
)
from .errors import CancelledError
from .llm import LLM, Conversations, Prompts, _chats, _completions
from .outputs import OutputDelta, RequestOutput
from .sampling_params import Ids, SamplingParams

_ROOM_S = 0.05  # retry interval for a request for which the engine had no room


class AsyncLLM:
    """:class:`LLM` for asyncio programs: the same arguments and answers, awaited. Cancelling the waiting task, or
    leaving the loop over a stream, ends the request in the engine. Loading the model blocks: call ``await
    asyncio.to_thread(AsyncLLM, "model.gguf")`` if an event loop is already running.

    Args:
        model: as in LLM.
        options: arguments and options of LLM.
    """

    def __init__(
        self, model: str | os.PathLike[str] | os.PathLike[bytes] | None = None, **options: OptionValue
    ) -> None:
        self._llm = LLM(model, **options)  # type: ignore[arg-type]  # LLM checks their types
        self._engine = self._llm._engine
        self._inboxes: dict[asyncio.AbstractEventLoop, _Inbox] = {}

    # --- Whole answers ---

    @overload
    async def generate(
        self,
        prompts: Iterable[Prompt],
        sampling_params: Params = None,
        *,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]: ...

    @overload
    async def generate(
        self,
        prompts: Prompt,
        sampling_params: Params = None,
        *,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]: ...

    async def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]:
        """Like :meth:`LLM.generate`: continues one prompt or a list of them; answers are in the order of the
        prompts."""
        asked, one = _completions(prompts, sampling_params)
        set_priorities(asked, priority)
        return await self._answers(asked, one, places_of(places, len(asked)))

    async def chat(
        self,
        messages: Conversations,
        sampling_params: Params = None,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Like :meth:`LLM.chat`: answers one conversation or a list of them."""
        asked, one = _chats(messages, sampling_params, add_generation_prompt, chat_template_kwargs)
        return await self._answers(asked, one, None)

    # --- Pieces ---

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AsyncAnswerStream:
        """Continues one text, piece by piece: ``async for piece in llm.stream(...)``. The request starts when the first
        piece is awaited. Errors of arguments are raised at once; see :meth:`LLM.stream`."""
        return AsyncAnswerStream(self, completion("prompt", prompt, one_params(sampling_params)))

    def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncAnswerStream:
        """Answers one conversation, piece by piece; see :meth:`stream` and :meth:`LLM.stream_chat`."""
        params = one_params(sampling_params)
        return AsyncAnswerStream(self, chat("messages", messages, params, add_generation_prompt, chat_template_kwargs))

    # --- Other methods of LLM, which do not wait for the engine ---

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text; see :meth:`LLM.encode`."""
        return self._llm.encode(text, add_special_tokens=add_special_tokens)

    def encode_chat(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, through the model's chat template; see :meth:`LLM.encode_chat`."""
        return self._llm.encode_chat(
            messages, add_generation_prompt=add_generation_prompt, chat_template_kwargs=chat_template_kwargs
        )

    def decode(self, token_ids: Wholes | Ids) -> str:
        """The text of token ids; see :meth:`LLM.decode`."""
        return self._llm.decode(token_ids)

    @property
    def model(self) -> dict[str, Any]:
        """As :attr:`LLM.model`."""
        return self._llm.model

    def outcome(self) -> dict[str, Any]:
        """The engine's results so far: the result object of docs/reference/api.md."""
        return self._llm.outcome()

    def metrics_text(self) -> str:
        """The engine's metrics in Prometheus text format."""
        return self._llm.metrics_text()

    def close(self) -> None:
        """Cancels running requests and frees the model. Waiting calls raise this package's CancelledError."""
        self._llm.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"Async{self._llm!r}"

    def __reduce__(self) -> Any:
        no_pickle("an AsyncLLM", "create one in each process")

    # --- Internal ---

    def _inbox(self) -> _Inbox:
        loop = asyncio.get_running_loop()
        if loop not in self._inboxes:
            self._inboxes = {its: inbox for its, inbox in self._inboxes.items() if not its.is_closed()}
            self._inboxes[loop] = _Inbox(self._engine, loop)
        return self._inboxes[loop]

    async def _answers(
        self, asked: list[Asked], one: bool, places: list[tuple[int, int]] | None
    ) -> list[RequestOutput]:
        requests = await asyncio.to_thread(prepare_all, self._engine, asked, one)
        order = list(range(len(requests)))
        if places is not None:
            for request, place in zip(requests, places):
                request.place(*place)
            order.sort(key=[position for position, _ in places].__getitem__)
        waiters: dict[int, _Waiter] = {}
        outputs: list[RequestOutput] = []
        inbox = self._inbox()
        try:
            for i in order:
                waiters[i] = await inbox.submit(requests[i], False)
            for i, its in enumerate(asked):
                ended = await waiters[i].end()
                text = self._engine.detokenize(ended[1]) if its.prompt is None else its.text
                outputs.append(request_output(self._engine, (i, *ended[1:]), text))
        finally:
            for waiter in waiters.values():
                waiter.cancel()
        return outputs


class _Waiter:
    """The received part of one request, and the task that waits for more."""

    def __init__(self, inbox: _Inbox, index: int) -> None:
        self._inbox, self._index = inbox, index
        self.pieces: deque[_native.Piece] = deque()
        self.ended: _native.Ended | None = None
        self._wake: asyncio.Future[None] | None = None

    def tell(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def more(self) -> None:
        """Waits for a piece or the end."""
        while not self.pieces and self.ended is None:
            self._wake = self._inbox.loop.create_future()
            await self._wake

    async def end(self) -> _native.Ended:
        while self.ended is None:
            await self.more()
        if self.ended[4] is not None:
            raise self.ended[4]
        return self.ended

    def cancel(self) -> None:
        """Cancels the request if it is running."""
        if self.ended is None:
            self._inbox.forget(self._index)


class _Inbox:
    """The answers for one event loop."""

    def __init__(self, engine: _native.Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._answers = _native.Answers(engine, True)
        self._waiters: dict[int, _Waiter] = {}
        self._next = 0

    async def submit(self, request: _native.ReadyRequest, pieces: bool) -> _Waiter:
        index, self._next = self._next, self._next + 1
        waiter = _Waiter(self, index)
        while not self._answers.submit(index, request, pieces):
            await asyncio.to_thread(self._answers.wait_for_room, request, _ROOM_S)
        if not self._waiters:
            self.loop.add_reader(self._answers.fileno(), self._take)
        self._waiters[index] = waiter
        return waiter

    def forget(self, index: int) -> None:
        self._answers.cancel_one(index)
        if self._waiters.pop(index, None) is not None and not self._waiters:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self.loop.is_closed():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            self.loop.remove_reader(self._answers.fileno())
        else:  # a stream that another thread dropped
            self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        # In this order: an ended answer has no later pieces.
        all_ended = self._answers.take_ended()
        for piece in self._answers.take_pieces():
            if (waiter := self._waiters.get(piece[0])) is not None:
                waiter.pieces.append(piece)
                waiter.tell()
        for ended in all_ended:
            if (waiter := self._waiters.pop(ended[0], None)) is not None:
                waiter.ended = ended
                waiter.tell()
        if not self._waiters:
            self.loop.remove_reader(self._answers.fileno())


class AsyncAnswerStream:
    """The pieces of one answer, an asynchronous iterator of :class:`OutputDelta`. Leaving its loop, or cancelling its
    task, ends the request. Only one task may read it; others get UnavailableError."""

    def __init__(self, llm: AsyncLLM, asked: Asked) -> None:
        self._llm, self._asked = llm, asked
        self._waiter: _Waiter | None = None
        self._closed = False
        self._readers = Readers()

    def __aiter__(self) -> AsyncIterator[OutputDelta]:
        return _AsyncReader(self)

    async def __anext__(self) -> OutputDelta:
        return await self._next(None)

    async def _next(self, reader: object | None) -> OutputDelta:
        self._readers.begin(reader)
        try:
            return await self._piece()
        except BaseException:
            self.close()
            raise
        finally:
            self._readers.end()

    async def _piece(self) -> OutputDelta:
        if self._closed:
            raise StopAsyncIteration
        if self._waiter is None:
            engine = self._llm._engine
            request = await asyncio.to_thread(self._asked.prepare, engine)
            if self._closed:  # closed while waiting
                raise StopAsyncIteration
            self._waiter = await self._llm._inbox().submit(request, True)
        waiter = self._waiter
        if not waiter.pieces and waiter.ended is None:
            await waiter.more()
        if self._closed or not waiter.pieces:
            raise StopAsyncIteration
        piece = waiter.pieces.popleft()
        if piece[-1] is not None:
            raise piece[-1]
        return output_delta(self._llm._engine, piece, self._asked.params.logprobs is not None)

    def close(self) -> None:
        """Cancels the request and ends the iterator."""
        self._closed = True
        if (waiter := self._waiter) is not None:
            waiter.cancel()
            if waiter.ended is None:
                waiter.ended = (0, [], 0, [], CancelledError("the stream was closed"))
                waiter.tell()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        self.close()

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<AsyncAnswerStream, {'at its end' if self._closed else 'open'}>"

    def __reduce__(self) -> Any:
        no_pickle("a stream", "send its pieces")


class _AsyncReader:
    """A loop over a stream."""

    __slots__ = ("_stream", "__weakref__")

    def __init__(self, stream: AsyncAnswerStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[OutputDelta]:
        return self

    async def __anext__(self) -> OutputDelta:
        return await self._stream._next(self)
