// Conversations in this browser's localStorage: a list of {id, title, changed}, and each conversation under its own name.
//
// A conversation: {id, title, settings: {system, temperature, ...}, models: [name], turns: [turn]}.
// A turn: {text, answers: [answer]}, or with the results of tools {model, results: [{id, name, content}], answers}.
// An answer: {model, text, reasoning, tools: [{id, name, arguments}], state, error, requestId, figures}.

const LIST = "tactus.chats";
const nameOf = (id) => `tactus.chat.${id}`;

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const listChats = () => read(LIST, []);

export function newChat(from) {
  return {
    id: Array.from(crypto.getRandomValues(new Uint32Array(2)), (n) => n.toString(36)).join(""),
    title: "",
    settings: from ? { ...from.settings } : {},
    models: from ? [...from.models] : [],
    turns: [],
  };
}

/** Null: there is none. */
export const loadChat = (id) => read(nameOf(id), null);

/** False: the browser's storage is full or off. */
export function saveChat(chat) {
  try {
    localStorage.setItem(nameOf(chat.id), JSON.stringify(chat));
    const others = listChats().filter((entry) => entry.id !== chat.id);
    localStorage.setItem(LIST, JSON.stringify([{ id: chat.id, title: chat.title, changed: Date.now() }, ...others]));
    return true;
  } catch {
    return false;
  }
}

/** Changes the title without moving the conversation to the top. */
export function renameChat(id, title) {
  const chat = loadChat(id);
  if (!chat) return;
  chat.title = title;
  localStorage.setItem(nameOf(id), JSON.stringify(chat));
  localStorage.setItem(LIST, JSON.stringify(listChats().map((entry) => (entry.id === id ? { ...entry, title } : entry))));
}

export function deleteChat(id) {
  localStorage.removeItem(nameOf(id));
  localStorage.setItem(LIST, JSON.stringify(listChats().filter((entry) => entry.id !== id)));
}
