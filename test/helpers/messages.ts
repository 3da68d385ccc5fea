// Anthropic's message shapes for scripts and assertions: messages, the events of their streams, errors.
import { type Script, sse } from './conversation.ts';
import { eventFrame } from './recorded.ts';

export const ERROR_OF = (type: string, message = 'as scripted') =>
  ({ type: 'error', error: { type, message }, request_id: 'req_of_the_upstream' }) as const;

export const USAGE = {
  input_tokens: 25,
  cache_creation_input_tokens: 100,
  cache_read_input_tokens: 1000,
  output_tokens: 1,
};

/** A whole message. */
export function message(content: readonly object[] = [textBlock('Hello')], more: object = {}): object {
  return {
    id: 'msg_01scripted',
    type: 'message',
    role: 'assistant',
    model: 'upstream-model',
    content,
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { ...USAGE, output_tokens: 15 },
    ...more,
  };
}

export const textBlock = (text: string) => ({ type: 'text', text });

export const messageStart = (usage: object = USAGE): string =>
  eventFrame({ type: 'message_start', message: message([], { stop_reason: null, usage }) });

export const PING = eventFrame({ type: 'ping' });

export const blockStart = (block: object = textBlock(''), index = 0): string =>
  eventFrame({ type: 'content_block_start', index, content_block: block });

export const delta = (piece: object, index = 0): string =>
  eventFrame({ type: 'content_block_delta', index, delta: piece });

export const textDelta = (text: string, index = 0): string => delta({ type: 'text_delta', text }, index);

export const blockStop = (index = 0): string => eventFrame({ type: 'content_block_stop', index });

export const messageDelta = (stop_reason = 'end_turn', usage: object = { output_tokens: 15 }): string =>
  eventFrame({ type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage });

export const MESSAGE_STOP = eventFrame({ type: 'message_stop' });

export const errorEvent = (type = 'overloaded_error'): string => eventFrame(ERROR_OF(type));

/** The frames of a stream with this text. */
export function messageStream(pieces: readonly string[] = ['Hel', 'lo'], stop = 'end_turn'): string[] {
  const text = pieces.map((piece) => textDelta(piece));
  return [messageStart(), blockStart(), PING, ...text, blockStop(), messageDelta(stop), MESSAGE_STOP];
}

export const typed = (frames: readonly string[]): Script => sse(frames, { done: false });
