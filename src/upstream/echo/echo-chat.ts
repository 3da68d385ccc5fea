// Chat endpoint of the echo upstream: repeats the last user message.
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

/** The parsed chat request. */
interface ChatRequest {
  readonly kind: 'chat_request';
  readonly model: string;
  /** Estimated prompt tokens. */
  readonly promptTokens: number;
  readonly reply: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly maxTokens: number;
}

/** Overhead per message in OpenAI's chat format, approximately. */
const TOKENS_PER_MESSAGE = 4;

export function answerChat(body: Buffer, created: number): EchoEvent[] {
  const request = parseChatRequest(body);
  if (request.kind === 'echo_error') return echoErrorAnswer(request);
  const all = pieces(request.reply);
  const output = all.slice(0, request.maxTokens);
  const finish = output.length < all.length ? 'length' : 'stop';
  const usage = {
    prompt_tokens: request.promptTokens,
    completion_tokens: output.length,
    total_tokens: request.promptTokens + output.length,
  };
  const id = `chatcmpl-${randomBytes(12).toString('hex')}`;
  const common = { created, model: request.model, system_fingerprint: 'fp_echo' };
  if (!request.stream) {
    const message = { role: 'assistant', content: output.join(''), refusal: null };
    const choice = { index: 0, message, logprobs: null, finish_reason: finish };
    return jsonAnswer(200, { id, object: 'chat.completion', ...common, choices: [choice], usage });
  }
  const chunk = (delta: object, finishReason: string | null = null): object => ({
    id,
    object: 'chat.completion.chunk',
    ...common,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
    ...(request.includeUsage ? { usage: null } : {}),
  });
  const chunks = [
    chunk({ role: 'assistant', content: '', refusal: null }),
    ...output.map((content) => chunk({ content })),
    chunk({}, finish),
    ...(request.includeUsage ? [{ id, object: 'chat.completion.chunk', ...common, choices: [], usage }] : []),
  ];
  return streamAnswer([...chunks.map((each) => `data: ${JSON.stringify(each)}\n\n`), 'data: [DONE]\n\n']);
}

function parseChatRequest(bytes: Buffer): ChatRequest | EchoError {
  const read = readEchoBody(bytes);
  if (read.kind === 'echo_error') return read;
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
  const facts = readMessages(messages);
  if (facts.kind === 'echo_error') return facts;
  const maxTokens = readMaxTokens(body, ['max_completion_tokens', 'max_tokens']);
  if (typeof maxTokens === 'object') return maxTokens;
  const options = body['stream_options'];
  return {
    kind: 'chat_request',
    model,
    promptTokens: facts.tokens,
    reply:
      facts.lastText === undefined ? 'Say something, and I will say it back.' : `You said: ${facts.lastText}`,
    stream: stream === true,
    includeUsage: isRecord(options) && options['include_usage'] === true,
    maxTokens,
  };
}

interface Messages {
  readonly kind: 'messages';
  readonly tokens: number;
  readonly lastText: string | undefined;
}

/** Estimates the tokens and finds the text of the last user message. */
function readMessages(messages: readonly unknown[]): Messages | EchoError {
  let tokens = 0;
  let lastText: string | undefined;
  for (const [index, message] of messages.entries()) {
    const path = `messages[${index}]`;
    if (!isRecord(message) || typeof message['role'] !== 'string') {
      return echoError(`Invalid '${path}': a message is an object with a role.`, path, 'invalid_type');
    }
    const text = contentText(message['content']);
    if (text === undefined) {
      const param = `${path}.content`;
      return echoError(
        `Invalid type for '${param}': expected a string or an array of parts.`,
        param,
        'invalid_type',
      );
    }
    // Four characters per token: accurate enough, and cheap for long prompts.
    tokens += TOKENS_PER_MESSAGE + Math.ceil(text.length / 4);
    if (message['role'] === 'user') lastText = text;
  }
  return { kind: 'messages', tokens, lastText };
}

/** Parts without text (images, audio) count as empty. */
export function contentText(content: unknown): string | undefined {
  if (content === undefined || content === null) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return undefined;
  return content
    .map((part: unknown) => (isRecord(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}
