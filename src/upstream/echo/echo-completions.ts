// Chat and text completions of the echo upstream: repeat the last user message, or the prompt.
import { randomBytes } from 'node:crypto';
import { memberOf } from '../../wire/error-answer.ts';
import {
  contentText,
  type EchoAnswer,
  EchoFault,
  type EchoRequest,
  echoTokens,
  isRecord,
  jsonAnswer,
  replyTo,
  streamAnswer,
} from './echo-answer.ts';

/** Overhead per message in OpenAI's chat format, approximately. */
const TOKENS_PER_MESSAGE = 4;

/** How choices of an endpoint are written. */
interface ChoiceFormat {
  readonly id: string;
  readonly object: string;
  readonly chunk: string;
  readonly whole: (text: string) => object;
  readonly piece: (text: string) => object;
  /** The first and the last choice of a stream. */
  readonly first?: object;
  readonly last: object;
}

const CHAT: ChoiceFormat = {
  id: 'chatcmpl-',
  object: 'chat.completion',
  chunk: 'chat.completion.chunk',
  whole: (content) => ({ message: { role: 'assistant', content, refusal: null } }),
  piece: (content) => ({ delta: { content } }),
  first: { delta: { role: 'assistant', content: '', refusal: null } },
  last: { delta: {} },
};

const TEXT: ChoiceFormat = {
  id: 'cmpl_',
  object: 'text_completion',
  chunk: 'text_completion',
  whole: (text) => ({ text }),
  piece: (text) => ({ text }),
  last: { text: '' },
};

export function chat(request: EchoRequest): EchoAnswer {
  const { messages } = request.members;
  if (messages === undefined)
    throw new EchoFault("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  if (!Array.isArray(messages))
    throw new EchoFault("Invalid type for 'messages': expected an array.", 'messages', 'invalid_type');
  if (messages.length === 0)
    throw new EchoFault("Invalid 'messages': empty array.", 'messages', 'empty_array');
  let tokens = 0;
  let said = '';
  for (const [index, message] of messages.entries()) {
    const path = `messages[${index}]`;
    if (!isRecord(message) || typeof message['role'] !== 'string')
      throw new EchoFault(`Invalid '${path}': a message is an object with a role.`, path, 'invalid_type');
    const text = contentText(message['content']);
    if (text === undefined) {
      const param = `${path}.content`;
      const expected = 'expected a string or an array of parts';
      throw new EchoFault(`Invalid type for '${param}': ${expected}.`, param, 'invalid_type');
    }
    tokens += TOKENS_PER_MESSAGE + echoTokens(text);
    if (message['role'] === 'user') said = text;
  }
  return answerChoices(request, CHAT, said, tokens);
}

export function complete(request: EchoRequest): EchoAnswer {
  const [prompt] = textsOf(request.members['prompt'] ?? '');
  if (prompt === undefined) throw new EchoFault("Invalid type for 'prompt'.", 'prompt', 'invalid_type');
  return answerChoices(request, TEXT, prompt, echoTokens(prompt));
}

function answerChoices(
  { model, members, created }: EchoRequest,
  format: ChoiceFormat,
  said: string,
  prompt: number,
): EchoAnswer {
  const { pieces, text, isCut } = replyTo(said, members, 'max_completion_tokens', 'max_tokens');
  const finish = isCut ? 'length' : 'stop';
  const usage = {
    prompt_tokens: prompt,
    completion_tokens: pieces.length,
    total_tokens: prompt + pieces.length,
  };
  const id = format.id + randomBytes(12).toString('hex');
  const common = { id, object: format.object, created, model, system_fingerprint: 'fp_echo' };
  const choice = (content: object, finish_reason: string | null = null) => [
    { index: 0, ...content, logprobs: null, finish_reason },
  ];
  if (members['stream'] !== true)
    return jsonAnswer({ ...common, choices: choice(format.whole(text), finish), usage });
  const showsUsage = memberOf(members['stream_options'], 'include_usage') === true;
  const chunk = (choices: object[], used: object | null = null) => ({
    ...common,
    object: format.chunk,
    choices,
    ...(showsUsage && { usage: used }),
  });
  const chunks = [
    ...(format.first === undefined ? [] : [chunk(choice(format.first))]),
    ...pieces.map((piece) => chunk(choice(format.piece(piece)))),
    chunk(choice(format.last, finish)),
    ...(showsUsage ? [chunk([], usage)] : []),
  ];
  return streamAnswer(chunks, 'data: [DONE]\n\n');
}

/** One text, several texts, or token numbers, joined as a text. */
export function textsOf(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  if (!Array.isArray(input)) return [];
  if (input.length > 0 && input.every((each) => typeof each === 'number')) return [input.join(' ')];
  return input.map((each: unknown) => (Array.isArray(each) ? each.join(' ') : String(each)));
}
