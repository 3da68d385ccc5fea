// Conversion of a complete response to the equivalent event stream, from the response's own bytes: the API's events for its output,
// each text in one piece, and the response itself in the last event.
import type { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { decodeString, JsonScanner } from '../../wire/json/json.ts';
import {
  EMPTY_ARRAY,
  EMPTY_STRING,
  elementsOf,
  type Json,
  type JsonMember,
  type JsonMembers,
  literal,
  membersOf,
  NULL,
  objectOf,
} from '../../wire/json/json-pieces.ts';
import { EventList, isTextValue, presentMember } from './event-conversion.ts';

const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;

/** The final status of a response → its last event. */
const LAST_EVENTS: Readonly<Record<string, string>> = {
  '': 'response.completed',
  completed: 'response.completed',
  incomplete: 'response.incomplete',
  cancelled: 'response.cancelled',
  failed: 'response.failed',
};

/** Items whose output is one text: its member and its events. */
const TEXT_ITEMS: Readonly<Record<string, readonly [member: string, events: string]>> = {
  function_call: ['arguments', 'response.function_call_arguments'],
  mcp_call: ['arguments', 'response.mcp_call_arguments'],
  custom_tool_call: ['input', 'response.custom_tool_call_input'],
};

/** Text parts of a message. */
const TEXT_PARTS: Readonly<Record<string, readonly [member: string, events: string]>> = {
  output_text: ['text', 'response.output_text'],
  refusal: ['refusal', 'response.refusal'],
};

/**
 * @param body a complete and valid JSON object
 * @param alias JSON string token for `model`, or undefined to leave it
 * @returns undefined where it is not a finished response, which has no truthful last event
 */
export function responseEvents(body: Buffer, alias: Buffer | undefined): Buffer | BodyPieces | undefined {
  const scanner = new JsonScanner();
  const response = membersOf([body], scanner);
  const last = LAST_EVENTS[textOf(response.get('status'))];
  const items = response.get('output');
  if (last === undefined || items?.[0]?.[0] !== OPEN_ARRAY) return undefined;
  if (alias !== undefined && response.has('model')) response.set('model', [alias]);
  return new ResponseEvents(scanner.sawLineBreak).of(response, elementsOf(items), last);
}

class ResponseEvents {
  readonly #events: EventList;
  #sequence = 0;

  constructor(hasLineBreaks: boolean) {
    this.#events = new EventList(hasLineBreaks);
  }

  of(response: JsonMembers, items: readonly Json[], last: string): Buffer | BodyPieces {
    const begun = replaced(response, { status: literal('in_progress'), output: EMPTY_ARRAY, usage: NULL });
    for (const type of ['response.created', 'response.in_progress']) this.#add(type, [['response', begun]]);
    for (const [index, item] of items.entries()) this.#item(item, index);
    this.#add(last, [['response', objectOf(response)]]);
    return this.#events.bytes;
  }

  #item(item: Json, index: number): void {
    const members = membersOf(item);
    const outputIndex: JsonMember = ['output_index', literal(index)];
    const id = members.get('id');
    const about: JsonMember[] = [
      ...(id === undefined ? [] : [['item_id', id] satisfies JsonMember]),
      outputIndex,
    ];
    const type = textOf(members.get('type'));
    const text = TEXT_ITEMS[type];
    const lists = { content: EMPTY_ARRAY, summary: EMPTY_ARRAY };
    const begun = { ...lists, status: literal('in_progress'), ...(text && { [text[0]]: EMPTY_STRING }) };
    const added = item[0]?.[0] === OPEN_OBJECT ? replaced(members, begun) : item;
    this.#add('response.output_item.added', [outputIndex, ['item', added]]);
    if (type === 'message') this.#parts(members, about);
    else if (type === 'reasoning') this.#summary(members, about);
    else if (text !== undefined) this.#text(text, members, about);
    this.#add('response.output_item.done', [outputIndex, ['item', item]]);
  }

  #parts(message: JsonMembers, item: readonly JsonMember[]): void {
    for (const [index, part] of elementsOf(message.get('content')).entries()) {
      const members = membersOf(part);
      const about: JsonMember[] = [...item, ['content_index', literal(index)]];
      const text = TEXT_PARTS[textOf(members.get('type'))];
      const begun = {
        annotations: EMPTY_ARRAY,
        logprobs: EMPTY_ARRAY,
        ...(text && { [text[0]]: EMPTY_STRING }),
      };
      this.#add('response.content_part.added', [...about, ['part', replaced(members, begun)]]);
      if (text !== undefined) this.#text(text, members, about);
      for (const [at, annotation] of elementsOf(members.get('annotations')).entries()) {
        const what: JsonMember[] = [
          ['annotation_index', literal(at)],
          ['annotation', annotation],
        ];
        this.#add('response.output_text.annotation.added', [...about, ...what]);
      }
      this.#add('response.content_part.done', [...about, ['part', part]]);
    }
  }

  #summary(reasoning: JsonMembers, item: readonly JsonMember[]): void {
    for (const [index, part] of elementsOf(reasoning.get('summary')).entries()) {
      const members = membersOf(part);
      const about: JsonMember[] = [...item, ['summary_index', literal(index)]];
      const begun = replaced(members, { text: EMPTY_STRING });
      this.#add('response.reasoning_summary_part.added', [...about, ['part', begun]]);
      this.#text(['text', 'response.reasoning_summary_text'], members, about);
      this.#add('response.reasoning_summary_part.done', [...about, ['part', part]]);
    }
  }

  /** The events of a text: one delta with all of it, and `done`. */
  #text(
    [member, events]: readonly [string, string],
    members: JsonMembers,
    about: readonly JsonMember[],
  ): void {
    const text = members.get(member);
    if (!isTextValue(text, true)) return;
    const logprobs = events === 'response.output_text' ? presentMember(members, 'logprobs') : [];
    if (isTextValue(text)) this.#add(`${events}.delta`, [...about, ['delta', text], ...logprobs]);
    this.#add(`${events}.done`, [...about, [member, text], ...logprobs]);
  }

  #add(type: string, members: readonly JsonMember[]): void {
    this.#events.add(type, [['sequence_number', literal(this.#sequence)], ...members]);
    this.#sequence += 1;
  }
}

/** A copy of the object with the given members replaced, if present. */
function replaced(members: JsonMembers, values: Readonly<Record<string, Json>>): Json {
  return objectOf([...members].map(([name, value]): JsonMember => [name, values[name] ?? value]));
}

function textOf(json: Json | undefined): string {
  const [bytes] = json ?? [];
  return isTextValue(json) && bytes !== undefined ? decodeString(bytes, { start: 0, end: bytes.length }) : '';
}
