// Secrets in places where they do not belong: in an upstream's error, as a model's name, on the command line.
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { runCommand, startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json, upstreamError } from '../helpers/hostile-upstream.ts';
import { tempDir } from '../helpers/wait.ts';

const KEY = 'deadbeefcafef00d5eedfacade0ddba1';

test('an upstream error that quotes the credential is not relayed, and keeps its status', async () => {
  const quoting = upstreamError('Bad header: Bearer credential-of-up', { code: 'x' });
  await using upstream = await HostileUpstream.start(json(400, quoting));
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const answer = await gateway.chat(chatRequest());
  expect(answer.status).toBe(400);
  expect(answer.text()).not.toContain('credential-of-up');
  expect(JSON.parse(answer.text())).toMatchObject({ error: { code: 'upstream_error' } });
});

test('a key in the place of the model is in neither the answer nor the log', async () => {
  await using gateway = await startGateway();
  const key = await gateway.key();
  const answer = await gateway.chat(chatRequest({ model: key }));
  expect(answer.status).toBe(404);
  const line = await gateway.accessLine(answer);
  expect(line['model']).toBe(`${key.slice(0, 8)}…`);
  expect(answer.text()).not.toContain(key);
  expect(gateway.output).not.toContain(key);
});

test.each([[[KEY]], [['serve', `--${KEY}`]], [['check', KEY]]])(
  'a key on the command line is not echoed: %#',
  async (words) => {
    const { code, stdout, stderr } = await runCommand(words);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^tollgate( \w+)?: .+ --help\n$/);
    expect(stdout + stderr).not.toContain(KEY);
  },
);

test.each([
  ['203.0.113.9', '203.0.113.9:1 is not an address of this machine'],
  ['no-such-host.invalid', 'the host name no-such-host.invalid cannot be resolved'],
])('a listener on %s is refused with a sentence', async (host, sentence) => {
  await using files = await tempDir();
  const config = `listen: { host: ${host}, port: 1 }
admin: { port: 0 }
store: sqlite:${files.file('t.db')}
upstreams: { e: { builtin: echo } }
models: { m: { targets: [{ upstream: e, model: m }] } }
`;
  await writeFile(files.file('c.yaml'), config);
  const { code, stderr } = await runCommand(['serve', '--config', files.file('c.yaml')]);
  expect(code).toBe(1);
  expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  expect(stderr).toContain(sentence);
});
