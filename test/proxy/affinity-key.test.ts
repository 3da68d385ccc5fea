// The key of `balance: affinity`: which requests have the same one, and which do not.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { affinityKey } from '../../src/proxy/request/affinity-key.ts';
import { KEY_NAMES, PROMPT_NAMES, WatchedMembers } from '../../src/proxy/routes/watched-members.ts';

const watched = new WatchedMembers([...KEY_NAMES, ...PROMPT_NAMES]);

interface Given {
  readonly headers?: Readonly<Record<string, string>>;
  readonly holderId?: string;
}

function keyOf(body: object | string, { headers = {}, holderId = 'h' }: Given = {}): string | undefined {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const request = { headers, header: 'x-session-id', holderId, body: bytes };
  return affinityKey({ ...request, members: watched.search(bytes) });
}

const message = (role: string, content: string) => ({ role, content });
const session = { headers: { 'x-session-id': 's' } };

describe('the key is', () => {
  test('`prompt_cache_key`, whatever else is in the request and whose it is', () => {
    const key = keyOf({ prompt_cache_key: 'a', messages: [message('user', 'x')] });
    expect(
      keyOf(
        { messages: [], previous_response_id: 'r', prompt_cache_key: 'a' },
        { ...session, holderId: 'i' },
      ),
    ).toBe(key);
    expect(keyOf({ prompt_cache_key: 'b', messages: [message('user', 'x')] })).not.toBe(key);
  });

  test('else the header of the session', () => {
    const key = keyOf({ messages: [message('user', 'x')] }, session);
    expect(keyOf({ messages: [message('user', 'y')], conversation: 'c' }, session)).toBe(key);
    expect(keyOf({ messages: [message('user', 'x')] }, { headers: { 'x-session-id': 't' } })).not.toBe(key);
    expect(keyOf({ prompt_cache_key: '', messages: [message('user', 'x')] }, session)).toBe(key);
  });

  test('else `previous_response_id` or the conversation, as an id or as an object with it', () => {
    expect(keyOf({ previous_response_id: 'resp_1', input: 'x' })).toBe(
      keyOf({ previous_response_id: 'resp_1', input: 'y' }),
    );
    expect(keyOf({ conversation: { id: 'conv_1' }, input: 'x' })).toBe(
      keyOf({ conversation: 'conv_1', input: 'y' }),
    );
    expect(keyOf({ conversation: 'conv_1', input: 'x' })).not.toBe(
      keyOf({ conversation: 'conv_2', input: 'x' }),
    );
    expect(keyOf({ conversation: null, input: 'x' })).toBe(keyOf({ input: 'x' }));
  });

  test('else the holder and the beginning of the prompt', () => {
    const body = { messages: [message('system', 's'), message('user', 'x')] };
    expect(keyOf(body, { holderId: 'other' })).not.toBe(keyOf(body));
    expect(keyOf({ messages: [message('system', 't'), message('user', 'x')] })).not.toBe(keyOf(body));
    expect(keyOf({ messages: [message('system', 's'), message('user', 'y')] })).not.toBe(keyOf(body));
    expect(keyOf({ input: 'x' })).not.toBe(keyOf({ input: 'y' }));
    expect(keyOf({ prompt: 'x' })).toBe(keyOf({ prompt: 'x', max_tokens: 3 }));
  });

  test('none without a prompt', () => {
    expect(keyOf({ model: 'm' })).toBeUndefined();
    expect(
      affinityKey({ headers: {}, header: 'x', holderId: 'h', body: Buffer.alloc(0), members: undefined }),
    ).toBeUndefined();
  });
});

describe('a conversation that grows keeps its key', () => {
  const text = fc.string({ maxLength: 3_000, unit: 'binary' });
  const history = fc.array(fc.record({ role: fc.constantFrom('assistant', 'user', 'tool'), content: text }), {
    maxLength: 6,
  });

  test.each(['messages', 'input'])('in `%s`, from its first message of the user on', (name) => {
    fc.assert(
      fc.property(
        fc.array(text, { maxLength: 2 }),
        text,
        history,
        history,
        (system, first, more, evenMore) => {
          const start = [...system.map((each) => message('system', each)), message('user', first)];
          const of = (messages: readonly object[]) => keyOf({ model: 'm', stream: true, [name]: messages });
          const key = of(start);
          expect(key).toBeDefined();
          expect(of([...start, ...more])).toBe(key);
          expect(of([...start, ...more, ...evenMore])).toBe(key);
        },
      ),
    );
  });

  test('with a system prompt of any size, and the first messages of users tell conversations apart', () => {
    for (const size of [10, 1_000, 5_000, 60_000]) {
      const start = (user: string) => [message('system', 's'.repeat(size)), message('user', user)];
      const key = keyOf({ messages: start('x') });
      expect(keyOf({ messages: [...start('x'), message('assistant', 'a'), message('user', 'b')] })).toBe(key);
      expect(keyOf({ messages: start('y') })).not.toBe(key);
    }
  });

  test('with a first message of the user that is not searched for, and with a picture in it', () => {
    const start = [message('system', 's'.repeat(100_000)), message('user', 'x')];
    expect(keyOf({ messages: [...start, message('assistant', 'a')] })).toBe(keyOf({ messages: start }));
    const picture = [
      { role: 'user', content: [{ type: 'image_url', image_url: { url: `data:,${'A'.repeat(200_000)}` } }] },
    ];
    expect(keyOf({ messages: [...picture, message('assistant', 'a')] })).toBe(keyOf({ messages: picture }));
  });

  test('with white space, and with a role behind the content', () => {
    const first = '{ "content" : [ { "type":"text","text":"role" } ] , "role" : "user" }';
    const key = keyOf(`{"messages": [ ${first} ]}`);
    expect(keyOf(`{"messages": [ ${first} , {"role":"assistant","content":"a"}]}`)).toBe(key);
  });
});
