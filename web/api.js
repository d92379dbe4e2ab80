// Requests to this server: the key, errors, streams of events.

const NAME = "tactus.key";
let keyDialog = null; // asks for a key: (why) => promise of true, or of false if the user declines
let asking = null;

export const apiKey = {
  get: () => sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "",
  kept: () => localStorage.getItem(NAME) !== null,
  set(value, keep) {
    sessionStorage.removeItem(NAME);
    localStorage.removeItem(NAME);
    if (value) (keep ? localStorage : sessionStorage).setItem(NAME, value);
  },
};

export function setKeyDialog(ask) {
  keyDialog = ask;
}

/** Asks for a key, once for all that want one meanwhile: a promise of true, or of false if the user declines. */
export function askForKey(why) {
  asking ??= keyDialog(why).finally(() => (asking = null));
  return asking;
}

/** An answer other than 2xx; `message` is the server's. */
export class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function errorOf(response) {
  const text = await response.text().catch(() => "");
  try {
    return new HttpError(response.status, JSON.parse(text).error.message);
  } catch {
    return new HttpError(response.status, text.slice(0, 300) || `HTTP status ${response.status}`);
  }
}

/** fetch() with the key. If the server wants another one, the user is asked, and the request is sent again. */
export async function send(path, options = {}) {
  for (;;) {
    const used = apiKey.get();
    const headers = new Headers(options.headers);
    if (used) headers.set("Authorization", `Bearer ${used}`);
    const response = await fetch(path, { ...options, headers, cache: "no-store" });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401 || !keyDialog) throw error;
    if (used !== apiKey.get()) continue; // another request has asked meanwhile
    if (!(await askForKey(used ? "The server does not know this key." : "This server asks for a key (--api-key)."))) throw error;
  }
}

export async function getJson(path) {
  return (await send(path)).json();
}

/** The events of a text/event-stream answer: {event, data}, with data as text. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        let event = "message";
        const data = [];
        for (const line of rest.slice(0, end).split("\n")) {
          if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
          else if (line.startsWith("event:")) event = line.slice(6).trim();
        }
        rest = rest.slice(end + 2);
        if (data.length > 0) yield { event, data: data.join("\n") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Follows a stream of JSON events until `signal` aborts: take(event, data) for each. When the stream ends or fails,
 * said(why) is called and the connection is made again, after a pause that grows.
 */
export async function follow(path, signal, take, said) {
  for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 8000)) {
    try {
      const response = await send(path, { signal });
      for await (const { event, data } of eventsOf(response)) {
        wait = 500;
        take(event, JSON.parse(data));
      }
      if (!signal.aborted) said("The server has ended the stream. Connecting again.");
    } catch (error) {
      if (signal.aborted) return;
      said(error.status ? error.message : "The server does not answer. Connecting again.");
      if (error.status === 401 || error.status === 403) return; // asking again would bring the same answer
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
