// When a token is fetched, how long it is used, and what failures of the source change.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { GatewayError } from '../../../src/errors.ts';
import { RenewedToken } from '../../../src/upstream/tokens/renewed-token.ts';
import { type AccessToken, TokenError } from '../../../src/upstream/tokens/token-source.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A source that answers when it is told to, and tokens `t1`, `t2`, … that live for `lifeMs`. */
class FakeSource {
  fetches = 0;
  lifeMs = 3_600_000;
  /** While set, fetches fail with it. */
  error: Error | undefined;
  /** While set, fetches hang. */
  isHung = false;
  readonly failures: (readonly [string, boolean])[] = [];
  readonly tokens: string[] = [];
  readonly token = new RenewedToken({
    source: () => this.#fetch(),
    onToken: ({ value }) => this.tokens.push(value),
    onFailure: ({ message }, isInForce) => this.failures.push([message, isInForce]),
    random: () => 0,
  });

  async #fetch(): Promise<AccessToken> {
    this.fetches += 1;
    if (this.isHung) return new Promise(() => undefined);
    if (this.error !== undefined) throw this.error;
    return { value: `t${this.fetches}`, fetchedAt: Date.now(), expiresAt: Date.now() + this.lifeMs };
  }
}

const codeOf = (promise: Promise<void> | undefined) =>
  promise?.then(
    () => 'ok',
    (error: unknown) => (error instanceof GatewayError ? error.code : 'another error'),
  );

describe('a token', () => {
  test('is fetched at the start, once for all who wait, and then nobody waits', async () => {
    const source = new FakeSource();
    source.token.start();
    await Promise.all([source.token.ready(), source.token.ready(), source.token.ready()]);
    expect(source.fetches).toBe(1);
    expect(source.token.current?.value).toBe('t1');
    expect(source.token.ready()).toBeUndefined();
  });

  test.each([
    ['of an hour after 48 minutes', 3_600_000, 48 * 60_000],
    ['of five minutes after four', 300_000, 240_000],
    ['of two minutes after one', 120_000, 60_000],
    ['of ten seconds after five', 10_000, 5_000],
  ])('%s is renewed', async (_, lifeMs, dueMs) => {
    const source = new FakeSource();
    source.lifeMs = lifeMs;
    source.token.start();
    await vi.advanceTimersByTimeAsync(dueMs - 1);
    expect(source.fetches).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(source.fetches).toBe(2);
    expect(source.token.current?.value).toBe('t2');
  });

  test('is used while its renewal fails, until just before it expires, and failures are retried with growing waits', async () => {
    const source = new FakeSource();
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    source.error = new TokenError('down');
    await vi.advanceTimersByTimeAsync(48 * 60_000);
    expect(source.failures).toEqual([['down', true]]);
    expect(source.token.ready()).toBeUndefined();
    await vi.advanceTimersByTimeAsync(1_000 + 2_000 + 4_000);
    expect(source.fetches).toBe(5);
    // 5 s before its end it is not sent any more.
    await vi.advanceTimersByTimeAsync(12 * 60_000 - 7_000 - 5_000 - 1);
    expect(source.token.ready()).toBeUndefined();
    await vi.advanceTimersByTimeAsync(1);
    expect(source.token.current).toBeUndefined();
    expect(await codeOf(source.token.ready())).toBe('upstream_auth_error');
    source.error = undefined;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(source.token.ready()).toBeUndefined();
  });

  test('of less than 50 s is used until a tenth of its life is left', async () => {
    const source = new FakeSource();
    source.lifeMs = 20_000;
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    source.error = new TokenError('down');
    await vi.advanceTimersByTimeAsync(17_999);
    expect(source.token.current?.value).toBe('t1');
    await vi.advanceTimersByTimeAsync(1);
    expect(source.token.current).toBeUndefined();
  });

  test('that cannot be fetched fails requests at once, and the issuer is asked again only after the wait', async () => {
    const source = new FakeSource();
    source.error = new TokenError('down');
    expect(await codeOf(source.token.ready())).toBe('upstream_auth_error');
    for (let request = 0; request < 100; request += 1)
      expect(await codeOf(source.token.ready())).toBe('upstream_auth_error');
    expect(source.fetches).toBe(1);
    expect(source.failures).toEqual([['down', false]]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(source.fetches).toBe(2);
  });

  test('that came before the wait of a failed fetch was over is fetched again at once when it has expired', async () => {
    const source = new FakeSource();
    source.error = new TokenError('down');
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    [source.error, source.lifeMs] = [undefined, 200];
    source.token.renew();
    source.token.stop();
    await vi.advanceTimersByTimeAsync(200);
    expect(await codeOf(source.token.ready())).toBe('ok');
    expect(source.fetches).toBe(3);
  });

  test('is given up after 10 s when the issuer hangs', async () => {
    const source = new FakeSource();
    source.isHung = true;
    const waited = codeOf(source.token.ready());
    await vi.advanceTimersByTimeAsync(10_001);
    expect(await waited).toBe('upstream_auth_error');
    expect(source.failures).toEqual([['no token within 10 s', false]]);
  });

  test('is not renewed after the stop, but still fetched for a request', async () => {
    const source = new FakeSource();
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    source.token.stop();
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(source.fetches).toBe(1);
    await source.token.ready();
    expect(source.fetches).toBe(2);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a rejected token', () => {
  test('is replaced once for all whose request it failed', async () => {
    const source = new FakeSource();
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    expect(await Promise.all([source.token.replace('t1'), source.token.replace('t1')])).toEqual([true, true]);
    expect(source.fetches).toBe(2);
    // A request that was under way with it finds the new one.
    expect(await source.token.replace('t1')).toBe(true);
    expect(source.fetches).toBe(2);
  });

  test('is not replaced again within 30 s: a missing permission is no storm', async () => {
    const source = new FakeSource();
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    expect(await source.token.replace('t1')).toBe(true);
    for (let request = 0; request < 50; request += 1) expect(await source.token.replace('t2')).toBe(false);
    expect(source.fetches).toBe(2);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(await source.token.replace('t2')).toBe(true);
    expect(source.fetches).toBe(3);
  });

  test('stays in force when no other can be fetched', async () => {
    const source = new FakeSource();
    source.token.start();
    await vi.advanceTimersByTimeAsync(0);
    source.error = new TokenError('down');
    expect(await source.token.replace('t1')).toBe(false);
    expect(source.token.current?.value).toBe('t1');
  });
});
