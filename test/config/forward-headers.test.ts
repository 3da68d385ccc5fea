// `forward_headers` of upstreams and targets: which names may be written there.
import { describe, expect, it } from 'vitest';
import { faultsOf, load } from './sample.ts';

const withHeaders = (ofUpstream: string, ofTarget = ofUpstream, more = ''): string =>
  `upstreams: { a: { base_url: https://a.example/v1, forward_headers: ${ofUpstream}${more} } }
models: { m: { targets: [{ upstream: a, model: x, forward_headers: ${ofTarget} }] } }
`;

describe('forward_headers', () => {
  it.each([
    ['[X-Team, idempotency-key]', ['x-team', 'idempotency-key']],
    ['["x-vendor-*", "openai-*"]', ['x-vendor-*', 'openai-*']],
    ['[traceparent, x-forwarded-for, x-tokenizer, x-keynote, x-max-tokens-per-minute]', undefined],
  ])('takes %s', (list, names) => {
    const { upstreams, models } = load(withHeaders(list)).dynamic;
    const [ofUpstream, ofTarget] = [upstreams['a'], models['m']?.targets[0]];
    expect(ofUpstream).toMatchObject({ forward_headers: names ?? expect.anything() });
    expect(ofTarget).toMatchObject({ forward_headers: names ?? expect.anything() });
  });

  it.each([
    ...'connection keep-alive te trailer transfer-encoding upgrade expect host proxy-connection'.split(' '),
    ...'content-type content-length content-encoding accept accept-encoding user-agent x-request-id'.split(
      ' ',
    ),
    ...'sec-websocket-key http2-settings'.split(' '),
  ])('refuses %s, which the gateway sets', (name) => {
    const faults = faultsOf(withHeaders(`[${name}]`, `[${name.toUpperCase()}]`));
    expect(faults.map(({ message }) => message)).toEqual([
      'upstreams.a.forward_headers[0]: is a header that the gateway sets itself',
      'models.m.targets[0].forward_headers[0]: is a header that the gateway sets itself',
    ]);
  });

  it.each([
    ...'authorization proxy-authorization cookie set-cookie api-key x-api-key apikey x-goog-api-key'.split(
      ' ',
    ),
    ...'x-auth-token x-amz-security-token x-access-key ocp-apim-subscription-key x-secret x-session-token'.split(
      ' ',
    ),
    ...'x-litellm-api-key x-user-password x-jwt cookie2 x-virtual-key x-id-token'.split(' '),
  ])('refuses %s, which may be a credential', (name) => {
    const [first] = faultsOf(withHeaders(`[${name}]`, '[]'));
    expect(first?.message).toMatch(/credential of the client|gateway sets itself/);
  });

  it.each([
    ['["*"]', 'must be a header name'],
    ['["x-*-a"]', 'must be a header name'],
    ['["x y"]', 'must be a header name'],
    ['["x_team"]', 'must be a header name'],
    ['[""]', 'must not be empty'],
    ['["x-*"]', 'is too wide'],
    ['["x-vend*"]', 'is too wide'],
    ['["-*"]', 'is too wide'],
    ['x-team', 'must be a list'],
  ])('refuses %s', (list, message) => {
    const [first] = faultsOf(withHeaders(list, '[]'));
    expect(first?.message).toContain(message);
  });

  it('refuses what `headers` sets', () => {
    const faults = faultsOf(withHeaders('[x-a, X-Team]', '[]', ', headers: { x-TEAM: a }'));
    expect(faults.map(({ message }) => message)).toEqual([
      'upstreams.a.forward_headers[1]: is also set by `headers`; remove one of them',
    ]);
  });

  it('refuses a list of a built-in model, which gets no headers', () => {
    const [first] = faultsOf(
      withHeaders('[x-a]', '[]').replace('base_url: https://a.example/v1', 'builtin: echo'),
    );
    expect(first?.message).toContain('has no effect with `builtin`');
  });
});
