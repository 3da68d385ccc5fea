// Endpoints of the echo upstream that rank, score, classify and count texts: by shared words, so that equal requests have equal answers.
import { randomUUID } from 'node:crypto';
import {
  type EchoAnswer,
  EchoFault,
  type EchoRequest,
  echoTokens,
  isRecord,
  jsonAnswer,
} from './echo-answer.ts';
import { textsOf } from './echo-completions.ts';

export function rerank({ model, members }: EchoRequest): EchoAnswer {
  const { query, top_n } = members;
  const documents = textsIn(members, 'documents');
  const results = documents
    .map((text, index) => ({ index, document: { text }, relevance_score: likeness(textOf(query), text) }))
    .sort((a, b) => b.relevance_score - a.relevance_score)
    .slice(0, typeof top_n === 'number' ? top_n : undefined);
  return jsonAnswer({ id: `rerank-${randomUUID()}`, model, results, usage: usageOf(documents, query) });
}

export function score({ model, members, created }: EchoRequest): EchoAnswer {
  const [first, second] =
    members['documents'] === undefined ? ['text_1', 'text_2'] : ['queries', 'documents'];
  const queries = textsIn(members, first);
  const documents = textsIn(members, second);
  const data = documents.map((text, index) => ({
    index,
    object: 'score',
    score: likeness(queries[index] ?? queries[0] ?? '', text),
  }));
  return listOf('score', { model, created, data, usage: usageOf(documents, ...queries) });
}

export function classifyTexts({ model, members, created }: EchoRequest): EchoAnswer {
  const inputs = textsIn(members, 'input');
  const data = inputs.map((text, index) => {
    const positive = likeness('good', text);
    const label = positive > 0 ? 'good' : 'other';
    return { index, label, probs: [positive, 1 - positive], num_classes: 2 };
  });
  return listOf('classify', { model, created, data, usage: usageOf(inputs) });
}

/** A character is a token. */
export function tokenize({ members }: EchoRequest): EchoAnswer {
  const tokens = Array.from(textsIn(members, 'prompt').join(''), (each) => each.codePointAt(0) ?? 0);
  return jsonAnswer({ count: tokens.length, max_model_len: 8192, tokens, token_strs: null });
}

export function detokenize({ members: { tokens } }: EchoRequest): EchoAnswer {
  if (!Array.isArray(tokens) || !tokens.every(isCodePoint))
    throw new EchoFault("Invalid 'tokens': expected the tokens of this model.", 'tokens', 'invalid_type');
  return jsonAnswer({ prompt: String.fromCodePoint(...tokens) });
}

function isCodePoint(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0x10ffff;
}

function listOf(kind: string, members: object): EchoAnswer {
  return jsonAnswer({ id: `${kind}-${randomUUID()}`, object: 'list', ...members });
}

/** A text, or a list of texts or of objects with one. @throws EchoFault */
function textsIn(members: EchoRequest['members'], name: string): readonly string[] {
  const value = members[name];
  const texts = Array.isArray(value) && value.some(isRecord) ? value.map(textOf) : textsOf(value);
  if (texts.length === 0) throw new EchoFault(`Missing required parameter: '${name}'.`, name);
  return texts;
}

function textOf(value: unknown): string {
  const text = isRecord(value) ? value['text'] : value;
  return typeof text === 'string' ? text : '';
}

/** The share of the words of a query that a text has. */
function likeness(query: string, text: string): number {
  const words = wordsOf(query);
  const found = new Set(wordsOf(text));
  return words.length === 0 ? 0 : words.filter((word) => found.has(word)).length / words.length;
}

function wordsOf(text: string): readonly string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

function usageOf(texts: readonly string[], ...queries: readonly unknown[]): object {
  const count = [...texts, ...queries.map(textOf)].reduce((sum, text) => sum + echoTokens(text), 0);
  return { prompt_tokens: count, total_tokens: count };
}
