// What counts as text in the output of a model, in chunks and in typed events, and what does not.
import { describe, expect, test } from 'vitest';
import { RESPONSES } from '../../src/proxy/endpoints/json-endpoints.ts';
import { SPEECH } from '../../src/proxy/endpoints/media-endpoints.ts';
import { BYTES_PER_TOKEN } from '../../src/proxy/request/token-estimate.ts';
import { readChunk, textOfChunk } from '../../src/wire/chat-chunk.ts';
import { MEDIA_BYTES_PER_TOKEN } from '../../src/wire/output-text.ts';

const TEXT = 'twelve bytes';
const BASE64 = 'QUJD'.repeat(40_000);
const media = (BASE64.length * BYTES_PER_TOKEN) / MEDIA_BYTES_PER_TOKEN;

function inDelta(delta: object | string): number {
  const json = typeof delta === 'string' ? delta : JSON.stringify(delta);
  readChunk(Buffer.from(`data: {"choices":[{"index":0,"delta":${json},"logprobs":{"content":[]}}]}\n\n`));
  return textOfChunk();
}

describe('in a delta', () => {
  test.each([
    ['content', { content: TEXT }, 12],
    ['a refusal beside nothing', { content: null, refusal: TEXT, tool_calls: [] }, 12],
    [
      'content in parts',
      {
        content: [
          { type: 'text', text: TEXT },
          { type: 'thinking', thinking: TEXT },
        ],
      },
      24,
    ],
    ['a name that nobody knows', { inner_monologue: TEXT }, 12],
    [
      'one thought under three names',
      { reasoning: TEXT, reasoning_content: TEXT, reasoning_details: [{ text: TEXT }] },
      12,
    ],
    [
      'the name and the arguments of a call',
      { tool_calls: [{ id: TEXT, type: 'function', function: { name: 'abc', arguments: TEXT } }] },
      15,
    ],
    [
      'arguments that are an object, whatever names the client gave them',
      {
        tool_calls: [{ id: TEXT, function: { name: 'abc', arguments: { id: TEXT, data: TEXT, role: [1] } } }],
      },
      3 + JSON.stringify({ id: TEXT, data: TEXT, role: [1] }).length,
    ],
    ['the input of a call', { content: [{ type: 'tool_use', id: TEXT, input: { type: TEXT } }] }, 23],
    ['arguments that are empty', { tool_calls: [{ function: { arguments: {} } }] }, 0],
    ['the old kind of call', { function_call: { name: 'abc', arguments: TEXT } }, 15],
    ['a transcript', { audio: { id: TEXT, transcript: TEXT } }, 12],
    [
      'a signature',
      { signature: TEXT, reasoning_details: [{ type: 'reasoning.encrypted', signature: TEXT }] },
      0,
    ],
    ['a role, numbers and nothing', { role: 'assistant', content: '', index: 7, refusal: null }, 0],
  ])('%s', (_, delta, bytes) => {
    expect(inDelta(delta)).toBe(bytes);
  });

  test('recognizes names with escapes', () => {
    expect(inDelta(`{"cont\\u0065nt":"${TEXT}","r\\u006fle":"${TEXT}","sign\\u0061ture":"${TEXT}"}`)).toBe(
      12,
    );
  });

  test.each([
    ['an image', { images: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${BASE64}` } }] }],
    ['sound', { audio: { id: 'a', data: BASE64 } }],
    ['an image in Markdown', { content: `![](data:image/png;base64,${BASE64})` }],
  ])('%s is no text', (_, delta) => {
    expect(inDelta(delta)).toBeGreaterThanOrEqual(Math.floor(media));
    expect(inDelta(delta)).toBeLessThan(media + 100);
  });

  test('every character of base64 and base64url belongs to an image, and no other', () => {
    const bytes = (character: string) => inDelta({ content: `;base64,${character.repeat(70_000)}` });
    const characters = Array.from({ length: 0x7f - 0x21 }, (_, index) => String.fromCharCode(0x21 + index));
    // Strings in JSON have a quote and a backslash as two bytes.
    const plain = characters.filter((character) => !'"\\'.includes(character));
    const inImages = plain.filter((character) => bytes(character) < 70_000);
    expect(inImages.join('')).toMatch(/^\+-\/0123456789=[A-Z]{26}_[a-z]{26}$/);
    expect(inDelta(`{"content":";base64,${'\\/'.repeat(35_000)}"}`)).toBeLessThan(70_000);
  });

  test('base64 in a text member is text', () => {
    expect(inDelta({ content: `;base64,${BASE64.slice(0, 8_000)}` })).toBe(8_008);
  });
});

describe('in the events of a response', () => {
  function reader(endpoint = RESPONSES) {
    const frames = endpoint.frames?.();
    return (type: string, more: object): number => {
      const bytes = Buffer.from(`event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`);
      frames?.read(bytes, 0, bytes.length);
      return frames?.text ?? Number.NaN;
    };
  }

  test('pieces count, and their repetition as a whole does not', () => {
    const text = reader();
    const message = { id: 'msg_1', type: 'message', content: [{ type: 'output_text', text: TEXT }] };
    expect(text('response.output_item.added', { item: { id: 'msg_1', type: 'message', content: [] } })).toBe(
      0,
    );
    expect(text('response.output_text.delta', { delta: TEXT.slice(0, 5), obfuscation: 'xxxx' })).toBe(5);
    expect(text('response.output_text.delta', { delta: TEXT.slice(5) })).toBe(7);
    expect(text('response.output_text.done', { text: TEXT })).toBe(0);
    expect(text('response.content_part.done', { part: { text: TEXT } })).toBe(0);
    expect(text('response.output_item.done', { item: message })).toBe(0);
    expect(text('response.function_call_arguments.delta', { delta: 'abcd' })).toBe(4);
  });

  test.each([
    ['parts alone', 'response.function_call_arguments.done', { arguments: TEXT }],
    [
      'items alone',
      'response.output_item.done',
      { item: { type: 'custom_tool_call', call_id: 'c', input: TEXT } },
    ],
  ])('%s count where there are no pieces', (_, type, more) => {
    expect(reader()(type, more)).toBe(12);
  });

  test('an event that has neither counts nothing', () => {
    const text = reader();
    expect(text('response.output_text.delta', { delta: TEXT })).toBe(12);
    expect(text('response.content_part.done', { part: { text: TEXT } })).toBe(0);
  });

  test('the same holds if created objects are recorded', () => {
    const frames = RESPONSES.frames?.(() => undefined);
    const item = { id: 'msg_1', type: 'message', content: [{ type: 'output_text', text: TEXT }] };
    const bytes = Buffer.from(`data: ${JSON.stringify({ type: 'response.output_item.done', item })}\n\n`);
    frames?.read(bytes, 0, bytes.length);
    expect(frames?.text).toBe(12);
  });

  test('sound and images are not text', () => {
    expect(reader()('response.audio.delta', { delta: BASE64 })).toBe(media);
    expect(reader()('response.image_generation_call.partial_image', { partial_image_b64: BASE64 })).toBe(
      media,
    );
    expect(reader(SPEECH)('speech.audio.delta', { audio: BASE64 })).toBe(media);
  });
});
