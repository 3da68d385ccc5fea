// Member names that refer to objects at an upstream, and the form of their ids. object-references.ts finds them in a body.
import { plainName } from './json/json-bytes.ts';

/**
 * The value of a member:
 *
 * - `object`: the id of an object.
 * - `response`: the id of a stored response.
 * - `approval`: the id of an item in the same input, or in a stored one.
 * - `call`: chosen by the client; connects a call with its output.
 * - `id`: the id of the enclosing object.
 * - `type`: the type of the enclosing object.
 */
export type NameMeaning = 'none' | 'object' | 'response' | 'approval' | 'call' | 'id' | 'type';

const WITH_ID =
  /(?:(?<!pro)file|vectorstore|batch|upload|part|conversation|container|prompt|skill|video|character|item)ids?$/;
const ALONE =
  /^(?:[a-z\d]*(?<!pro)files?|[a-z\d]*(?:vectorstore|batch|batche|upload|conversation|container)s?|parts?)$/;

/** Ids in OpenAI's form. */
const OBJECT_ID =
  /^(?:file|vs|vsfb|batch|upload|part|conv|cntr|cfile|pmpt|skill|video|char|rtc)[-_][a-z\d]{16,}$/i;
/** Items of a response or of a conversation: messages, reasoning, tool calls and their outputs. */
const ITEM_ID =
  /^(?:msg|rs|fco?|ws|fs|ig|ci|cuo?|mcp[lra]?|ctco?|lsho?|sho?|apco?|cmp|tso?|item)_[a-z\d]{16,}$/i;
const RESPONSE_ID = /^resp_[a-z\d]{16,}$/i;
/** Separators of several ids in one text. */
const SEPARATORS = /[\s,;|]+/;
/** Minimum length of an id. */
export const MIN_ID_LENGTH = 18;

type IdForm = 'object' | 'item' | 'response';

/** Names repeat: most requests have the same few dozen. */
const MAX_KNOWN = 2_000;
const known = new Map<string, NameMeaning>();

/** @param name unescaped, in any spelling */
export function meaningOf(name: string): NameMeaning {
  const found = known.get(name);
  if (found !== undefined) return found;
  const meaning = readMeaning(plainName(name));
  if (known.size >= MAX_KNOWN) known.clear();
  // Bounds the memory of the cache.
  if (name.length <= 64) known.set(name, meaning);
  return meaning;
}

/** The meaning of an `id` in an object of this name. For elements of a list, the name is the list's. */
export function meaningOfId(name: string): NameMeaning {
  const of = plainName(name).replace(
    /^(file|vectorstore|conversation|container|skill|video|character)s$/,
    '$1',
  );
  return meaningOf(of) === 'object' ? 'object' : meaningOf(`${of}id`);
}

/** Whether the elements of a list of this name are items of a response or of a conversation. */
export function isItemList(name: string): boolean {
  return /^(?:input|output|items)$/.test(plainName(name));
}

function readMeaning(name: string): NameMeaning {
  if (name === 'id' || name === 'type') return name;
  if (/responseids?$/.test(name)) return 'response';
  if (name.endsWith('approvalrequestid')) return 'approval';
  if (/callids?$/.test(name)) return 'call';
  return WITH_ID.test(name) || ALONE.test(name) ? 'object' : 'none';
}

/** The form of an id, or of each id of a list in a text; undefined for other texts. */
export function formOf(text: string): IdForm | undefined {
  const form = formOfOne(text);
  if (form !== undefined || text.length <= 2 * MIN_ID_LENGTH || !SEPARATORS.test(text)) return form;
  const forms = text.split(SEPARATORS).map(formOfOne);
  return forms.every((each) => each !== undefined) ? 'object' : undefined;
}

function formOfOne(text: string): IdForm | undefined {
  if (OBJECT_ID.test(text)) return 'object';
  if (ITEM_ID.test(text)) return 'item';
  return RESPONSE_ID.test(text) ? 'response' : undefined;
}

/** The text as some readers take it: up to U+0000, without surrounding white space. */
export function plainText(text: string): string {
  const end = text.indexOf('\0');
  return (end === -1 ? text : text.slice(0, end)).trim();
}

/** Whether a query contains an id anywhere. */
export function holdsId(text: string): boolean {
  return text.split(/[^\w-]+/).some((each) => formOfOne(each) !== undefined);
}
