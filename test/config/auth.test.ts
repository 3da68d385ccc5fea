// `upstreams.NAME.auth`: one kind, one proof of identity, and messages that say where and what to do.
import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { errorOf, load } from './sample.ts';

const config = (auth: string, more = '') => `
upstreams: { up: { base_url: "https://api.test/v1", ${more} auth: ${auth} } }
models: { m: { targets: [{ upstream: up, model: m }] } }
`;
const faults = (auth: string, more?: string) =>
  errorOf(() => load(config(auth, more), {})).faults.map(({ message }) => message);
const OAUTH2 = 'token_url: "https://issuer.test/token", client_id: c';
const IN = 'upstreams.up.auth';

describe('auth', () => {
  it.each([
    ['oauth2', `{ oauth2: { ${OAUTH2}, client_secret: s } }`],
    ['azure', '{ azure: {} }'],
    ['azure', '{ azure: { identity: workload } }'],
    ['azure', '{ azure: { tenant_id: t, client_id: c, client_secret: s } }'],
    ['google', '{ google: {} }'],
    ['command', '{ command: { run: [print-token] } }'],
  ])('of the kind %s: %s', (kind, auth) => {
    const upstream = load(config(auth), {}).dynamic.upstreams['up'];
    expect(upstream).toMatchObject({ kind: 'http', auth: { kind } });
  });

  it.each([
    ['{}', undefined, [`${IN}: needs exactly one of \`oauth2\`, \`azure\`, \`google\`, \`command\``]],
    [
      '{ azure: {}, google: {} }',
      undefined,
      [`${IN}: needs exactly one of \`oauth2\`, \`azure\`, \`google\`, \`command\``],
    ],
    [`{ azure: {} }`, 'api_key: k,', [`${IN}: and \`api_key\` are mutually exclusive; remove one of them`]],
    [
      '{ azure: {} }',
      'headers: { Authorization: x },',
      ['upstreams.up.headers.Authorization: is also set by `auth`; remove one of them'],
    ],
    [
      `{ oauth2: { ${OAUTH2} } }`,
      undefined,
      [`${IN}.oauth2: needs exactly one of \`client_secret\`, \`private_key\`, \`assertion\``],
    ],
    [
      `{ oauth2: { ${OAUTH2}, client_secret: s, assertion: a } }`,
      undefined,
      [`${IN}.oauth2: needs exactly one of \`client_secret\`, \`private_key\`, \`assertion\``],
    ],
    [
      `{ oauth2: { ${OAUTH2}, private_key: nonsense } }`,
      undefined,
      [`${IN}.oauth2.private_key: must be a private key in PEM form, without a passphrase`],
    ],
    [
      '{ azure: { client_secret: s } }',
      undefined,
      [
        `${IN}.azure: needs a \`tenant_id\` for its \`client_secret\``,
        `${IN}.azure: needs a \`client_id\` for its \`client_secret\``,
      ],
    ],
    [
      '{ google: { credentials: "{}" } }',
      undefined,
      [
        `${IN}.google.credentials: must be the JSON of a credentials file, with a \`type\` such as \`service_account\``,
      ],
    ],
    ['{ command: { run: [] } }', undefined, [`${IN}.command.run: needs a program`]],
    [
      '{ oauth: {} }',
      undefined,
      [expect.stringMatching(/needs exactly one/), expect.stringMatching(/did you mean `oauth2`/)],
    ],
  ])('%s with %s is rejected', (auth, more, expected) => {
    expect(faults(auth, more)).toEqual(expected);
  });

  it('takes an EC key of P-256 and no other', () => {
    const pem = (namedCurve: string) =>
      JSON.stringify(
        generateKeyPairSync('ec', { namedCurve }).privateKey.export({ type: 'sec1', format: 'pem' }),
      );
    expect(() =>
      load(config(`{ oauth2: { ${OAUTH2}, private_key: ${pem('prime256v1')} } }`), {}),
    ).not.toThrow();
    expect(faults(`{ oauth2: { ${OAUTH2}, private_key: ${pem('secp384r1')} } }`)).toEqual([
      `${IN}.oauth2.private_key: must be an RSA key, or an EC key of the curve P-256`,
    ]);
  });

  it('warns about a secret that is sent over plain http', () => {
    const auth = '{ oauth2: { token_url: "http://issuer.test/token", client_id: c, client_secret: s } }';
    expect(load(config(auth), {}).warnings.map(({ message }) => message)).toEqual([
      `${IN}.oauth2.token_url: sends its credential over plain http to another machine`,
    ]);
  });
});
