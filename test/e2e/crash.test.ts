// A fault in the gateway's own code while an answer begins: it costs that one request, and the log has it with its place.
import { writeFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream } from '../helpers/hostile-upstream.ts';
import { tempDir } from '../helpers/wait.ts';

/** Makes the head of a marked request's answer throw. */
const CRASH = `import http from 'node:http';
const { writeHead } = http.ServerResponse.prototype;
http.ServerResponse.prototype.writeHead = function (status, ...rest) {
  if (status === 200 && this.req?.headers['openai-beta'] === 'crash') throw new TypeError('a fault in the code');
  return writeHead.call(this, status, ...rest);
};`;

test.each([false, true])('a throw while an answer begins is 500 and no more, stream %s', async (stream) => {
  await using files = await tempDir();
  await writeFile(files.file('crash.mjs'), CRASH);
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({
    process: true,
    upstreams: { up: upstream.baseUrl },
    env: { NODE_OPTIONS: `--import=${files.file('crash.mjs')}` },
  });
  const crashed = await gateway.chat(chatRequest({ stream }), { headers: { 'openai-beta': 'crash' } });
  expect(crashed.status).toBe(500);
  expect(JSON.parse(crashed.text())).toMatchObject({ error: { code: 'internal_error' } });
  const well = await gateway.chat(chatRequest({ stream }));
  expect(well.status).toBe(200);
  await gateway.accessLine(well);
  expect(gateway.output).toContain('a fault in the code');
  expect(upstream.requests).toHaveLength(2);
});
