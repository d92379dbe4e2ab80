"""The engine in this process."""

from __future__ import annotations

import atexit
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Union, overload

from . import _native
from ._answers import output_delta, request_output
from ._check import Whole, flag, ids, items, no_pickle, plain, utf8, wrong
from ._options import OptionValue, argument_names, option_texts
from ._readers import Readers
from ._requests import (
    Asked,
    Message,
    Messages,
    Params,
    Places,
    Prompt,
    Wholes,
    chat,
    completion,
    conversations_of,
    one_params,
    params_of,
    places_of,
    prepare_all,
    prompts_of,
    set_priorities,
)
from .errors import InvalidArgumentError, TactusError, UnavailableError
from .outputs import OutputDelta, RequestOutput
from .sampling_params import Ids, SamplingParams

Prompts = Union[Prompt, Iterable[Prompt]]
Conversations = Union[Sequence[Message], Iterable[Messages]]

_LOOK_S = 0.02  # interval of checks for Python's signals
_log = logging.getLogger("tactus")
# Options that are a name or a path, so that numbers are rejected.
_KINDS = {
    **dict.fromkeys(("model", "chat-template", "draft-model", "weight-cache", "kv-cache-dir", "profile"), "path"),
    **dict.fromkeys(("dtype", "load-format", "activation-dtype", "quantization", "kv-cache-dtype", "kernels"), "name"),
    **dict.fromkeys(("scheduler", "served-model-name", "device"), "name"),
}


class LLM:
    """A loaded model. Use it in a ``with`` statement, or call :meth:`close`.

    Several threads may call it. A forked process cannot use an LLM that its parent created.

    Args:
        model: a GGUF file, a Hugging Face folder, or a name of ``tactus models list``; None: the default model.
        dtype: "auto", "float32" or "bfloat16"; on a GPU also "float16".
        seed: for requests without a seed, and for dummy weights.
        max_model_len: most tokens of prompt and answer together; None: the model's limit.
        max_num_seqs: most answers generated concurrently.
        max_num_batched_tokens: most tokens per step.
        kv_cache_dtype: "auto", "bfloat16", "float32" or "int8"; on a GPU also "float16" and "fp8".
        quantization: "q8_0", "int8" or "int4": quantise the weights at load.
        chat_template: a Jinja file instead of the model's template.
        options: every other engine option of ``tactus serve``, named like its flag with underscores (``threads=2``,
            ``kv_cache_memory="2GiB"``, ``prefix_caching=False``). Sizes are text such as "2GiB" or a number of bytes;
            durations text with a unit such as "50ms"; None means the default.

    Raises:
        ArgumentTypeError: an unknown option, or a value of an invalid type.
        ValueError: an invalid value, with its limit (InvalidArgumentError); a damaged file (DataLossError).
        FileNotFoundError: no such model (NotFoundError).
        RuntimeError: no memory or threads (ResourceExhaustedError).
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | os.PathLike[bytes] | None = None,
        *,
        dtype: str | None = None,
        seed: Whole | None = None,
        max_model_len: Whole | None = None,
        max_num_seqs: Whole | None = None,
        max_num_batched_tokens: Whole | None = None,
        kv_cache_dtype: str | None = None,
        quantization: str | None = None,
        chat_template: str | os.PathLike[str] | os.PathLike[bytes] | None = None,
        **options: OptionValue,
    ) -> None:
        named: dict[str, OptionValue] = {
            "model": model,
            "dtype": dtype,
            "seed": seed,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "kv_cache_dtype": kv_cache_dtype,
            "quantization": quantization,
            "chat_template": chat_template,
            **options,
        }
        if isinstance(model, str) and not model:
            raise InvalidArgumentError(
                "model: empty; give a file, a folder or a name, or leave it out for the default model", "model"
            )
        known = {**_native.engine_options(), "model": "path"}
        known.update((name, kind) for name, kind in _KINDS.items() if name in known)
        with argument_names(known):
            self._engine = _native.Engine(option_texts("LLM", named, known))
        for line in self._engine.start_up_lines:
            (
                _log.warning("%s", line.removeprefix("warning: "))
                if line.startswith("warning: ")
                else _log.info("%s", line)
            )
        self._path = "" if model is None else os.fsdecode(os.fspath(model))

    # --- Whole answers ---

    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]: ...

    @overload
    def generate(
        self,
        prompts: Prompt,
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]: ...

    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Wholes | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]:
        """Continues texts; answers are in the order of the prompts.

        Ctrl-C raises KeyboardInterrupt and cancels the call's requests. An error of one request cancels the others too.

        Args:
            prompts: one prompt or a list: strings, lists of token ids, or dicts with "prompt" or "prompt_token_ids",
                and "cache_salt" (prompts with different salts share nothing in the prefix cache).
            sampling_params: for all prompts, or one per prompt; None: SamplingParams().
            use_tqdm: show a progress bar if tqdm is installed; or a callable to use instead of ``tqdm.tqdm``.
            priority: one per prompt; lower runs first.
            places: one per prompt, from a plan (:attr:`Plan.places`): used by the engine with ``order="blend"``,
                "balance" or "dfs".

        Raises:
            InvalidArgumentError: an invalid prompt or parameter; nothing has run. Its subclass ArgumentTypeError if the
                type is invalid.
            RuntimeError: the engine failed or was closed.
        """
        asked, one = _completions(prompts, sampling_params)
        set_priorities(asked, priority)
        pairs = places_of(places, len(asked))
        bar = _bar_of(use_tqdm)
        return _answered(self._run([*prepare_all(self._engine, asked, one)], [a.text for a in asked], bar, pairs))

    def chat(
        self,
        messages: Conversations,
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations, through the model's chat template; answers are in the order of the conversations.

        Args:
            messages: one conversation (a list of ``{"role": ..., "content": ...}``) or a list of them.
            sampling_params: for all conversations, or one per conversation; None: SamplingParams().
            use_tqdm: as in :meth:`generate`.
            add_generation_prompt: whether the template adds the start of the answer.
            chat_template_kwargs: further variables of the template.

        Raises:
            As :meth:`generate`; also ValueError if the model has no chat template, or the template rejects the
            messages.
        """
        asked, one = _chats(messages, sampling_params, add_generation_prompt, chat_template_kwargs)
        bar = _bar_of(use_tqdm)
        return _answered(self._run([*prepare_all(self._engine, asked, one)], None, bar, None))

    def answer_each(
        self,
        prompts: Iterable[Any],
        sampling_params: Params = None,
        *,
        chat: bool = False,
        places: Places | None = None,
    ) -> list[RequestOutput | TactusError]:
        """Like :meth:`generate`, or :meth:`chat` with ``chat``, but a failing prompt has its error in the list of
        answers, and the others run.

        Args:
            prompts: a list of prompts, as in :meth:`generate`, or with ``chat`` of conversations.
            sampling_params: for all prompts, or one per prompt; None: SamplingParams().
            chat: the prompts are conversations.
            places: as in :meth:`generate`.

        Raises:
            InvalidArgumentError: ``prompts`` is no list, or ``places`` do not fit.
            UnavailableError: the LLM is closed.
        """
        as_chat = flag("chat", chat)
        listed = items("prompts", prompts, "a list of conversations" if as_chat else "a list of prompts")
        params = params_of(sampling_params, len(listed))
        pairs = places_of(places, len(listed))
        requests: list[_native.ReadyRequest | TactusError] = []
        texts: list[str | None] = []
        for i, (prompt, its) in enumerate(zip(listed, params)):
            name = f"prompts[{i}]"
            try:
                asked = _chat(name, plain(prompt), its, True) if as_chat else completion(name, prompt, its)
                texts.append(asked.text)
                requests.append(asked.prepare(self._engine))
            except InvalidArgumentError as error:
                requests.append(error)
            except TactusError as error:
                if isinstance(error, UnavailableError):
                    raise
                requests.append(error)
            if len(texts) < len(requests):
                texts.append(None)
        return self._run(requests, None if as_chat else texts, None, pairs, each=True)

    # --- Pieces ---

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AnswerStream:
        """Continues one text, piece by piece. Leaving the loop (or ``close()``) cancels the request.

        Args:
            prompt: text, token ids, or a dict, as in :meth:`generate`.
            sampling_params: None: SamplingParams().

        Raises:
            As :meth:`generate`, at once; errors of the engine while reading.
        """
        return self._stream(completion("prompt", prompt, one_params(sampling_params)))

    def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AnswerStream:
        """Answers one conversation, piece by piece; see :meth:`stream`.

        Args:
            messages: a list of ``{"role": ..., "content": ...}``.
            sampling_params: None: SamplingParams().
            add_generation_prompt: whether the template adds the start of the answer.
            chat_template_kwargs: further variables of the template.

        Raises:
            As :meth:`chat`, at once; errors of the engine while reading.
        """
        params = one_params(sampling_params)
        return self._stream(_chat("messages", messages, params, add_generation_prompt, chat_template_kwargs))

    # --- Text and tokens ---

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text.

        Args:
            text: the text.
            add_special_tokens: add the tokens that the model's tokeniser puts around a text.

        Raises:
            ArgumentTypeError: ``text`` is no string.
        """
        if not isinstance(text, str):
            raise wrong("text", text, "a string")
        return self._engine.tokenize(utf8("text", text), flag("add_special_tokens", add_special_tokens))

    def encode_chat(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, through the model's chat template.

        Args:
            messages: a list of ``{"role": ..., "content": ...}``.
            add_generation_prompt: whether the template adds the start of the answer.
            chat_template_kwargs: further variables of the template.

        Raises:
            As :meth:`chat`.
        """
        params = SamplingParams(max_tokens=None)
        asked = _chat("messages", messages, params, add_generation_prompt, chat_template_kwargs)
        return asked.prepare(self._engine).prompt_token_ids

    def decode(self, token_ids: Wholes | Ids) -> str:
        """The text of token ids, special tokens included; bytes that are not UTF-8 are replaced.

        Args:
            token_ids: ids of the model's vocabulary.

        Raises:
            InvalidArgumentError: an id that the vocabulary does not have.
        """
        if type(token_ids) is list and set(map(type, token_ids)) == {int}:  # the common case
            try:
                return self._engine.detokenize(token_ids)
            except TypeError:  # not a 32-bit number
                pass
        return self._engine.detokenize(ids("token_ids", token_ids))

    def get_tokenizer(self) -> LLM:
        """The object with ``encode`` and ``decode``: this one."""
        return self

    # --- The engine ---

    @property
    def model(self) -> dict[str, Any]:
        """name, path, architecture, max_model_len (tokens), vocab_size, num_parameters, weight_format, kernels,
        kv_tokens (capacity of the KV memory in tokens)."""
        return self._engine.model

    def outcome(self) -> dict[str, Any]:
        """The engine's results so far: the result object of docs/reference/api.md."""
        outcome: dict[str, Any] = json.loads(self._engine.outcome())
        return outcome

    def metrics_text(self) -> str:
        """The engine's metrics in Prometheus text format."""
        return self._engine.metrics()

    def close(self) -> None:
        """Cancels running requests and frees the model. Later calls raise UnavailableError; closing again has no
        effect."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({self._path!r})"

    def __reduce__(self) -> Any:
        no_pickle("an LLM", "create one in each process")

    # --- Internal ---

    def _stream(self, asked: Asked) -> AnswerStream:
        request = asked.prepare(self._engine)
        answers = _native.Answers(self._engine, False)
        while not answers.submit(0, request, True):
            answers.wait_for_room(request, _LOOK_S)
        return AnswerStream(self._engine, answers, asked.params)

    def _run(
        self,
        requests: list[_native.ReadyRequest | TactusError],
        texts: list[str | None] | None,
        make_bar: Callable[[int], Any] | None,
        places: list[tuple[int, int]] | None,
        each: bool = False,
    ) -> list[RequestOutput | TactusError]:
        """`each`: a failing request has its error in the list of answers, and the others run; otherwise the first error
        is raised."""
        outputs: list[RequestOutput | TactusError | None] = []
        ready: dict[int, _native.ReadyRequest] = {}
        for i, request in enumerate(requests):
            outputs.append(request if isinstance(request, TactusError) else None)
            if not isinstance(request, TactusError):
                ready[i] = request
                if places is not None:
                    request.place(*places[i])
        order = list(ready) if places is None else sorted(ready, key=lambda i: places[i][0])
        bar = make_bar(len(ready)) if make_bar is not None else None
        answers = _native.Answers(self._engine, False)
        try:
            left, later = len(order), iter(order)
            next_up = next(later, None)
            while left:
                while next_up is not None:
                    try:
                        if not answers.submit(next_up, ready[next_up], False):
                            break
                    except TactusError as error:
                        if not each or isinstance(error, UnavailableError):
                            raise
                        outputs[next_up] = error
                        left -= 1
                    next_up = next(later, None)
                if not left:
                    break
                answers.wait(_LOOK_S)
                for ended in answers.take_ended():
                    index, failure = ended[0], ended[4]
                    left -= 1
                    if failure is not None:
                        if not each:
                            raise failure
                        outputs[index] = failure
                        continue
                    text = self._engine.detokenize(ended[1]) if texts is None else texts[index]
                    outputs[index] = request_output(self._engine, ended, text)
                    if bar is not None:
                        bar.update(1)
        finally:
            answers.cancel()
            if bar is not None:
                bar.close()
        return [output for output in outputs if output is not None]


class AnswerStream:
    """The pieces of one answer, an iterator of :class:`OutputDelta`. Leaving its loop cancels the rest. Only one thread
    may read it; others get UnavailableError."""

    def __init__(self, engine: _native.Engine, answers: _native.Answers, params: SamplingParams) -> None:
        self._engine = engine
        self._answers: _native.Answers | None = answers
        self._logprobs = params.logprobs is not None
        self._pieces: list[_native.Piece] = []
        self._ended = False
        self._readers = Readers()

    def __iter__(self) -> Iterator[OutputDelta]:
        return _Reader(self)

    def __next__(self) -> OutputDelta:
        return self._next(None)

    def _next(self, reader: object | None) -> OutputDelta:
        self._readers.begin(reader)
        try:
            while not (pieces := self._pieces):
                answers = self._answers  # another thread may close the stream
                if answers is None or self._ended:
                    raise StopIteration
                answers.wait(_LOOK_S)
                # In this order: an ended answer has no later pieces.
                self._ended = bool(answers.take_ended())
                self._pieces = answers.take_pieces()[::-1]
            piece = pieces.pop()
            error = piece[-1]
            if error is not None:
                raise error
            return output_delta(self._engine, piece, self._logprobs)
        except BaseException:
            self.close()
            raise
        finally:
            self._readers.end()

    def close(self) -> None:
        """Cancels the rest of the answer and ends the iterator."""
        answers, self._answers, self._pieces = self._answers, None, []
        if answers is not None:
            answers.cancel()

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AnswerStream, {'at its end' if self._answers is None else 'open'}>"

    def __reduce__(self) -> Any:
        no_pickle("a stream", "send its pieces")


class _Reader:
    """A loop over a stream."""

    __slots__ = ("_stream", "__weakref__")

    def __init__(self, stream: AnswerStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[OutputDelta]:
        return self

    def __next__(self) -> OutputDelta:
        return self._stream._next(self)


_chat = chat  # LLM.answer_each has a parameter named chat


def _completions(prompts: Any, sampling_params: Params) -> tuple[list[Asked], bool]:
    listed, one = prompts_of(prompts)
    names = ["prompts"] if one else [f"prompts[{i}]" for i in range(len(listed))]
    params = params_of(sampling_params, len(listed))
    return [completion(*its) for its in zip(names, listed, params)], one


def _chats(messages: Any, sampling_params: Params, opens: Any, template_kwargs: Any) -> tuple[list[Asked], bool]:
    listed, one = conversations_of(messages)
    names = ["messages"] if one else [f"messages[{i}]" for i in range(len(listed))]
    params = params_of(sampling_params, len(listed))
    return [chat(*its, opens, template_kwargs) for its in zip(names, listed, params)], one


def _answered(outputs: list[RequestOutput | TactusError]) -> list[RequestOutput]:
    return [output for output in outputs if isinstance(output, RequestOutput)]


def _bar_of(use_tqdm: Any) -> Callable[[int], Any] | None:
    use_tqdm = plain(use_tqdm)
    if use_tqdm is False:
        return None
    if use_tqdm is True:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            return None
        use_tqdm = tqdm
    if not callable(use_tqdm):
        raise wrong("use_tqdm", use_tqdm, "True, False, or a callable to use instead of tqdm.tqdm")
    return lambda total: use_tqdm(total=total, desc="Processed prompts", unit=" prompts")


atexit.register(_native.end_calls)
