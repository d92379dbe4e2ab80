"""The engine in this process."""

from __future__ import annotations

import atexit
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Union

from . import _native
from ._body import body_text, unpacked
from ._calls import wait_for_calls, waiting
from ._options import OptionValue, argument_names, option_texts
from .errors import InvalidArgumentError, TactusError, UnavailableError
from .outputs import CompletionOutput, Logprob, OutputDelta, PositionLogprobs, RequestOutput
from .sampling_params import SamplingParams

# A prompt: text, token ids, {"prompt": text} or {"prompt_token_ids": ids}; the dicts may have a "cache_salt".
Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Message = Mapping[str, Any]  # {"role": ..., "content": ...}
Params = Union[SamplingParams, Sequence[SamplingParams], None]
Places = Sequence[tuple[int, int]]  # Plan.places

_LOOK_S = 0.05  # between two looks at Python's signals
_log = logging.getLogger("tactus")
_open: weakref.WeakSet[LLM] = weakref.WeakSet()


def _is_ids(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], float) or hasattr(value[0], "__index__")  # a float is refused as a token id


def _prompt_fields(prompt: Prompt) -> dict[str, Any]:
    prompt = unpacked(prompt)
    if isinstance(prompt, str) or _is_ids(prompt):
        return {"prompt": prompt}
    if isinstance(prompt, Mapping):
        unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
        if unknown:
            raise TypeError(
                f"prompt: unknown key {sorted(unknown)[0]!r}; give prompt or prompt_token_ids, and cache_salt"
            )
        if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
            raise ValueError("prompt: give one of the keys prompt and prompt_token_ids")
        text_or_ids = unpacked(prompt["prompt"] if "prompt" in prompt else prompt["prompt_token_ids"])
        if "prompt_token_ids" in prompt and not _is_ids(text_or_ids):
            raise ValueError("prompt: prompt_token_ids must be a list of at least one token id")
        fields = _prompt_fields(text_or_ids)
        if prompt.get("cache_salt") is not None:
            fields["cache_salt"] = prompt["cache_salt"]
        return fields
    raise TypeError(
        f"prompt: {prompt!r:.60} is a {type(prompt).__name__}; give a string, a list of token ids, or a dict "
        "with prompt or prompt_token_ids"
    )


def _params_of(params: Params, count: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    listed = list(params)
    if any(not isinstance(p, SamplingParams) for p in listed):
        raise TypeError("sampling_params: give one SamplingParams, or one for each prompt")
    if len(listed) != count:
        raise ValueError(f"sampling_params: {len(listed)} for {count} prompts; give one for each, or one for all")
    return listed


class LLM:
    """A model, loaded and ready. Use it in a ``with`` statement, or call :meth:`close`.

    Several threads may call it. A process that was forked after it was made cannot use it.

    Args:
        model: a GGUF file, a Hugging Face folder, or a name of ``tactus models list``; empty: the default model.
        dtype: "auto", "float32" or "bfloat16".
        seed: of the requests that state none, and of dummy weights.
        max_model_len: longest prompt and answer together, in tokens; None: the model's own.
        max_num_seqs: most answers that are generated at once.
        max_num_batched_tokens: most tokens of a step.
        kv_cache_dtype: "auto", "bfloat16", "float32" or "int8".
        quantization: "q8_0", "int8" or "int4": quantise the weights at load.
        chat_template: a Jinja file instead of the model's own template.
        options: every other option of ``tactus serve`` that concerns the engine, by its flag's name with underscores
            (``threads=2``, ``kv_cache_memory="2GiB"``, ``prefix_caching=False``). Sizes are text such as "2GiB" or a
            number of bytes; durations text with a unit such as "50ms"; None is the default.

    Raises:
        TypeError: an option that there is not.
        ValueError: a value that cannot work, with its limit (InvalidArgumentError); a damaged file (DataLossError).
        FileNotFoundError: no such model (NotFoundError).
        RuntimeError: no memory or threads (ResourceExhaustedError).
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "",
        *,
        dtype: str | None = None,
        seed: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        kv_cache_dtype: str | None = None,
        quantization: str | None = None,
        chat_template: str | None = None,
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
        known = ["model", *_native.engine_options()]
        with argument_names(known), waiting():
            self._engine = _native.Engine(option_texts("LLM", named, known))
        for line in self._engine.start_up_lines:
            (
                _log.warning("%s", line.removeprefix("warning: "))
                if line.startswith("warning: ")
                else _log.info("%s", line)
            )
        _open.add(self)

    # --- Whole answers ---

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Sequence[int] | None = None,
        places: Places | None = None,
    ) -> list[RequestOutput]:
        """Continues texts; the answers come in the order of the prompts.

        Ctrl-C raises KeyboardInterrupt and cancels the call's requests. So does any error of one of them.

        Args:
            prompts: one prompt or a list: strings, lists of token ids, or dicts with "prompt" or "prompt_token_ids",
            and
                "cache_salt" (prompts with different salts share nothing in the prefix cache).
            sampling_params: for all prompts, or one for each; None: SamplingParams().
            use_tqdm: show a progress bar where tqdm is installed; or what to call instead of ``tqdm.tqdm``.
            priority: of each prompt; lower runs first.
            places: of each prompt in a plan (:attr:`Plan.places`): with ``order="blend"``, "balance" or "dfs" the
            engine
                goes by them.

        Raises:
            TypeError, ValueError: a prompt or parameter that cannot work; nothing has run then.
            RuntimeError: the engine failed, or was closed.
        """
        prompts = unpacked(prompts)
        one = isinstance(prompts, (str, Mapping)) or _is_ids(prompts)
        listed: list[Any] = [prompts] if one else list(prompts)
        bodies = []
        for prompt, params in zip(listed, _params_of(sampling_params, len(listed))):
            bodies.append(({**_prompt_fields(prompt), **params.fields(chat=False)}, params))
        _check_length("priority", priority, len(bodies))
        _check_length("places", places, len(bodies))
        if priority is not None:
            for (body, _), value in zip(bodies, priority):
                body["priority"] = value
        texts = [body["prompt"] if isinstance(body["prompt"], str) else None for body, _ in bodies]
        return _answered(self._run(list(self._prepare_all(bodies, False)), texts, use_tqdm, places))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations, through the model's chat template; the answers come in the order of the conversations.

        Args:
            messages: one conversation (a list of ``{"role": ..., "content": ...}``) or a list of them.
            sampling_params: for all conversations, or one for each; None: SamplingParams().
            use_tqdm: as :meth:`generate`.
            add_generation_prompt: whether the template begins the answer.
            chat_template_kwargs: further variables of the template.

        Raises:
            As :meth:`generate`; ValueError too where the model has no chat template, or the template refuses.
        """
        one = bool(messages) and isinstance(messages[0], Mapping)
        listed: Sequence[Any] = [messages] if one else messages
        bodies = []
        for conversation, params in zip(listed, _params_of(sampling_params, len(listed))):
            bodies.append((_chat_body(conversation, params, add_generation_prompt, chat_template_kwargs), params))
        return _answered(self._run(list(self._prepare_all(bodies, True)), None, use_tqdm, None))

    def answer_each(
        self,
        prompts: Sequence[Any],
        sampling_params: Params = None,
        *,
        chat: bool = False,
        places: Places | None = None,
    ) -> list[RequestOutput | TactusError]:
        """As :meth:`generate`, or :meth:`chat` with ``chat``, but a prompt that cannot work has its error in its place,
        and
        the others run."""
        params = _params_of(sampling_params, len(prompts))
        _check_length("places", places, len(prompts))
        requests: list[_native.ReadyRequest | TactusError] = []
        texts: list[str | None] = []
        for prompt, its in zip(prompts, params):
            texts.append(prompt if isinstance(prompt, str) else None)
            try:
                body = (
                    _chat_body(unpacked(prompt), its, True, None)
                    if chat
                    else {**_prompt_fields(prompt), **its.fields(chat=False)}
                )
                requests.append(self._prepare(body, its, chat))
            except (TypeError, ValueError) as error:
                requests.append(error if isinstance(error, TactusError) else InvalidArgumentError(str(error)))
        return self._run(requests, None if chat else texts, False, places, each=True)

    # --- Pieces ---

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AnswerStream:
        """Continues one text, piece by piece. Leaving the loop (or ``close()``) cancels the request.

        Raises:
            As :meth:`generate`, at once; errors of the engine while it is read.
        """
        params = _params_of(sampling_params, 1)[0]
        return self._stream({**_prompt_fields(prompt), **params.fields(chat=False)}, params, False)

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AnswerStream:
        """Answers one conversation, piece by piece; as :meth:`stream`."""
        params = _params_of(sampling_params, 1)[0]
        return self._stream(_chat_body(messages, params, add_generation_prompt, chat_template_kwargs), params, True)

    # --- Text and tokens ---

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self._engine.tokenize(_utf8(text), add_special_tokens)

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, through the model's chat template."""
        params = SamplingParams(max_tokens=None)
        return self._prepare(
            _chat_body(messages, params, add_generation_prompt, chat_template_kwargs), params, True
        ).prompt_token_ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of token ids, special tokens included; bytes that are not UTF-8 are replaced."""
        return self._engine.detokenize(list(token_ids))

    def get_tokenizer(self) -> LLM:
        """What has ``encode`` and ``decode``: this object."""
        return self

    # --- The engine ---

    @property
    def model(self) -> dict[str, Any]:
        """name, path, architecture, max_model_len (tokens), vocab_size, num_parameters, weight_format, kernels,
        kv_tokens
        (tokens whose K and V fit its memory)."""
        model: dict[str, Any] = dict(self._engine.model)
        model["path"] = model["path"].decode("utf-8", "surrogateescape")
        return model

    def outcome(self) -> dict[str, Any]:
        """What the engine has done so far: the result object of docs/api.md."""
        outcome: dict[str, Any] = json.loads(self._engine.outcome())
        return outcome

    def metrics_text(self) -> str:
        """The engine's metrics as Prometheus reads them."""
        return self._engine.metrics()

    def close(self) -> None:
        """Cancels what runs and frees the model. Afterwards every call raises UnavailableError; again: no effect."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an LLM cannot be pickled: make one in each process")

    # --- Within ---

    def _prepare(self, body: Mapping[str, Any], params: SamplingParams, chat: bool) -> _native.ReadyRequest:
        with waiting():
            return self._engine.prepare(body_text(body), chat, params.max_tokens is None)

    def _stream(self, body: Mapping[str, Any], params: SamplingParams, chat: bool) -> AnswerStream:
        request = self._prepare(body, params, chat)
        answers = _native.Answers(self._engine, True)
        _submit(answers, 0, request)
        return AnswerStream(self._engine, answers, params)

    def _run(
        self,
        requests: list[_native.ReadyRequest | TactusError],
        texts: list[str | None] | None,
        use_tqdm: bool | Callable[..., Any],
        places: Places | None,
        each: bool = False,
    ) -> list[RequestOutput | TactusError]:
        """`each`: what fails has its error in its place, and the others run; else the first failure is raised."""
        outputs: list[RequestOutput | TactusError | None] = []
        ready: dict[int, _native.ReadyRequest] = {}
        for i, request in enumerate(requests):
            outputs.append(request if isinstance(request, TactusError) else None)
            if not isinstance(request, TactusError):
                ready[i] = request
                if places is not None:
                    request.place(*places[i])
        order = list(ready) if places is None else sorted(ready, key=lambda i: places[i][0])
        bar = _bar(use_tqdm, len(ready))
        answers = _native.Answers(self._engine, False)
        try:
            left, later = len(order), iter(order)
            next_up = next(later, None)
            while left:
                while next_up is not None:
                    try:
                        if not answers.submit(next_up, ready[next_up]):
                            break
                    except TactusError as error:
                        if not each or isinstance(error, UnavailableError):
                            raise
                        outputs[next_up] = error
                        left -= 1
                    next_up = next(later, None)
                if not left:
                    break
                with waiting():
                    answers.wait(_LOOK_S)
                for index, ids, cached, choices, failure in answers.take_ended():
                    if failure is not None:
                        if not each:
                            raise failure
                        outputs[index] = failure
                        left -= 1
                        continue
                    text = self.decode(ids) if texts is None else texts[index]
                    outputs[index] = RequestOutput(
                        str(index),
                        text,
                        ids,
                        [self._completion(i, choice) for i, choice in enumerate(choices)],
                        True,
                        cached,
                    )
                    left -= 1
                    if bar is not None:
                        bar.update(1)
        finally:
            answers.cancel()
            if bar is not None:
                bar.close()
        return [output for output in outputs if output is not None]

    def _prepare_all(
        self, bodies: list[tuple[dict[str, Any], SamplingParams]], chat: bool
    ) -> list[_native.ReadyRequest]:
        requests = []
        for i, (body, params) in enumerate(bodies):
            try:
                requests.append(self._prepare(body, params, chat))
            except TactusError as error:
                if len(bodies) == 1:
                    raise
                raise type(error)(f"{'conversation' if chat else 'prompt'} {i}: {error.message}", error.param) from None
        return requests

    def _completion(self, index: int, choice: _native.Choice) -> CompletionOutput:
        text, ids, rows, finish, stop = choice
        return CompletionOutput(
            index,
            text,
            ids,
            None if rows is None else sum(row[0][1] for row in rows),
            None if rows is None else _logprobs(self._engine, rows),
            finish,
            stop,
        )


class AnswerStream:
    """The pieces of one answer, an iterator of :class:`OutputDelta`. Leaving its loop cancels what is left."""

    def __init__(self, engine: _native.Engine, answers: _native.Answers, params: SamplingParams) -> None:
        self._engine = engine
        self._answers: _native.Answers | None = answers
        self._logprobs = params.logprobs is not None
        self._pieces: list[_native.Piece] = []
        self._ended = False

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> OutputDelta:
        try:
            while not self._pieces:
                answers = self._answers  # another thread may close it
                if answers is None or self._ended:
                    raise StopIteration
                with waiting():
                    answers.wait(_LOOK_S)
                # In this order: what ended has no piece after it.
                self._ended = bool(answers.take_ended())
                self._pieces = answers.take_pieces()[::-1]
            _, index, text, ids, rows, finish, stop, error = self._pieces.pop()
            if error is not None:
                raise error
            return OutputDelta(
                index, text, ids, _logprobs(self._engine, rows) if self._logprobs else None, finish, stop
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancels what is left of the answer; the iterator is at its end."""
        answers, self._answers, self._pieces = self._answers, None, []
        if answers is not None:
            answers.cancel()

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _chat_body(
    messages: Sequence[Message],
    params: SamplingParams,
    add_generation_prompt: bool,
    template_kwargs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    body = {"messages": messages, "add_generation_prompt": add_generation_prompt, **params.fields(chat=True)}
    if template_kwargs is not None:
        body["chat_template_kwargs"] = template_kwargs
    return body


def _check_length(name: str, values: Sequence[Any] | None, count: int) -> None:
    if values is not None and len(values) != count:
        raise ValueError(f"{name}: {len(values)} for {count} prompts; give one for each")


def _answered(outputs: list[RequestOutput | TactusError]) -> list[RequestOutput]:
    return [output for output in outputs if isinstance(output, RequestOutput)]


def _submit(answers: _native.Answers, index: int, request: _native.ReadyRequest) -> None:
    while not answers.submit(index, request):
        with waiting():
            answers.wait_for_room(request, _LOOK_S)


def _logprobs(engine: _native.Engine, rows: list[list[tuple[int, float]]]) -> list[PositionLogprobs]:
    positions = []
    for chosen, *best in rows:
        ranks = {token: rank for rank, (token, _) in enumerate(best, 1)}
        positions.append(
            {
                token: Logprob(logprob, ranks.get(token), engine.token_string(token))
                for token, logprob in [chosen, *best]
            }
        )
    return positions


def _bar(use_tqdm: bool | Callable[..., Any], total: int) -> Any:
    if use_tqdm is False:
        return None
    if use_tqdm is True:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            return None
        return tqdm(total=total, desc="Processed prompts", unit=" prompts")
    return use_tqdm(total=total, desc="Processed prompts", unit=" prompts")


def _utf8(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text: {text!r:.60} is a {type(text).__name__}; give a string")
    return text.encode("utf-8", "replace").decode()


@atexit.register
def _close_all() -> None:
    for llm in list(_open):
        llm.close()
    _native.stop_simulations()
    wait_for_calls()
