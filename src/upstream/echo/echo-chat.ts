// What the built-in model answers to a chat: the last thing that the user said.
import { randomBytes } from 'node:crypto';
import {
  type EchoError,
  type EchoEvent,
  echoError,
  echoErrorAnswer,
  isRecord,
  jsonAnswer,
  pieces,
  readEchoBody,
  readMaxTokens,
  streamAnswer,
} from './echo-shapes.ts';

/** What the request asks for, as far as this model understands it. */
interface Ask {
  readonly kind: 'ask';
  readonly model: string;
  /** What the request counts as, in tokens. */
  readonly promptTokens: number;
  readonly reply: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly maxTokens: number;
}

/** What OpenAI's chat format adds per message, roughly. */
const TOKENS_PER_MESSAGE = 4;

export function answerChat(body: Buffer, created: number): EchoEvent[] {
  const ask = understand(body);
  if (ask.kind === 'refusal') return echoErrorAnswer(ask);
  const all = pieces(ask.reply);
  const said = all.slice(0, ask.maxTokens);
  const finish = said.length < all.length ? 'length' : 'stop';
  const usage = {
    prompt_tokens: ask.promptTokens,
    completion_tokens: said.length,
    total_tokens: ask.promptTokens + said.length,
  };
  const id = `chatcmpl-${randomBytes(12).toString('hex')}`;
  const common = { created, model: ask.model, system_fingerprint: 'fp_echo' };
  if (!ask.stream) {
    const message = { role: 'assistant', content: said.join(''), refusal: null };
    const choice = { index: 0, message, logprobs: null, finish_reason: finish };
    return jsonAnswer(200, { id, object: 'chat.completion', ...common, choices: [choice], usage });
  }
  const chunk = (delta: object, finishReason: string | null = null): object => ({
    id,
    object: 'chat.completion.chunk',
    ...common,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
    ...(ask.includeUsage ? { usage: null } : {}),
  });
  const chunks = [
    chunk({ role: 'assistant', content: '', refusal: null }),
    ...said.map((content) => chunk({ content })),
    chunk({}, finish),
    ...(ask.includeUsage ? [{ id, object: 'chat.completion.chunk', ...common, choices: [], usage }] : []),
  ];
  return streamAnswer([...chunks.map((each) => `data: ${JSON.stringify(each)}\n\n`), 'data: [DONE]\n\n']);
}

function understand(bytes: Buffer): Ask | EchoError {
  const read = readEchoBody(bytes);
  if (read.kind === 'refusal') return read;
  const { model, members: body } = read;
  const { messages, stream } = body;
  if (messages === undefined) {
    return echoError("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  }
  if (!Array.isArray(messages)) {
    return echoError("Invalid type for 'messages': expected an array.", 'messages', 'invalid_type');
  }
  if (messages.length === 0) {
    return echoError("Invalid 'messages': empty array.", 'messages', 'empty_array');
  }
  const told = readMessages(messages);
  if (told.kind === 'refusal') return told;
  const maxTokens = readMaxTokens(body, ['max_completion_tokens', 'max_tokens']);
  if (typeof maxTokens === 'object') return maxTokens;
  const options = body['stream_options'];
  return {
    kind: 'ask',
    model,
    promptTokens: told.tokens,
    reply: told.said === undefined ? 'Say something, and I will say it back.' : `You said: ${told.said}`,
    stream: stream === true,
    includeUsage: isRecord(options) && options['include_usage'] === true,
    maxTokens,
  };
}

interface Messages {
  readonly kind: 'messages';
  readonly tokens: number;
  readonly said: string | undefined;
}

/** How long the messages are, and what the last message of a user said. */
function readMessages(messages: readonly unknown[]): Messages | EchoError {
  let tokens = 0;
  let said: string | undefined;
  for (const [index, message] of messages.entries()) {
    const place = `messages[${index}]`;
    if (!isRecord(message) || typeof message['role'] !== 'string') {
      return echoError(`Invalid '${place}': a message is an object with a role.`, place, 'invalid_type');
    }
    const text = contentText(message['content']);
    if (text === undefined) {
      const param = `${place}.content`;
      return echoError(
        `Invalid type for '${param}': expected a string or an array of parts.`,
        param,
        'invalid_type',
      );
    }
    // Four characters a token is close enough for a long prompt, and costs nothing.
    tokens += TOKENS_PER_MESSAGE + Math.ceil(text.length / 4);
    if (message['role'] === 'user') said = text;
  }
  return { kind: 'messages', tokens, said };
}

/** Parts that hold no text (images, audio) say nothing here. */
export function contentText(content: unknown): string | undefined {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return undefined;
  return content
    .map((part: unknown) => (isRecord(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}
