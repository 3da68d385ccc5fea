// Which calls of the official package are offered: each is answered, or named in docs/passthrough.md as not offered, so that a call that is
// new in the package is noticed. And containers, skills and videos of two holders, whose forms may name objects.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PASSTHROUGH_PATHS } from '../../src/config/schema/endpoint-names.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { ObjectsUpstream } from '../helpers/objects-upstream.ts';

let upstream: ObjectsUpstream;
let gateway: Gateway;
let keys: readonly [string, string];
let one: OpenAI;
let other: OpenAI;

beforeAll(async () => {
  upstream = await ObjectsUpstream.start();
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: {
      passthrough: { upstream: 'up', paths: [...PASSTHROUGH_PATHS] },
      currency: 'EUR',
      budgets: { unpriced: 'refuse' },
      models: { m: { targets: [{ upstream: 'up', model: 'm' }], price: { input: 1, output: 1 } } },
      tiers: { Lite: { budget: { per_day: 5 } }, Pro: { requests_per_minute: 100_000 } },
    },
  });
  keys = [await gateway.issueKey('Pro'), await gateway.issueKey('Pro')];
  const clientOf = (apiKey: string) => new OpenAI({ apiKey, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
  one = clientOf(keys[0]);
  other = clientOf(keys[1]);
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.[Symbol.asyncDispose]();
});

/** A call in the source of the package: the method, and the path with `{}` for what varies. */
function callsOfThePackage(): readonly string[] {
  const folder = fileURLToPath(new URL('resources/', import.meta.resolve('openai')));
  const calls = new Set<string>();
  let count = 0;
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.mjs')) continue;
    const source = readFileSync(folder + file, 'utf8');
    count += Array.from(source.matchAll(/this\._client\.(?:get|post|put|patch|delete|getAPIList)\(/g)).length;
    for (const [, called = '', , path = '', rest = ''] of source.matchAll(
      /this\._client\.(get|post|put|patch|delete|getAPIList)\(\s*(?:path ?)?([`'])(.*?)\2([^;]*)/gs,
    )) {
      const method = called === 'getAPIList' ? (rest.includes("method: 'post'") ? 'post' : 'get') : called;
      const [plain = ''] = path.replaceAll(/\$\{[^}]*\}/g, '{}').split('?');
      calls.add(`${method.toUpperCase()} /v1${plain}`);
      count -= 1;
    }
  }
  // Every call was read.
  expect(count).toBe(0);
  // docs/realtime.md has the others.
  return [...calls].filter((call) => !call.includes(' /v1/realtime/')).sort();
}

/** The rows of the table: a path with all below it, or one call. */
function notOffered(): readonly string[] {
  const page = readFileSync(new URL('../../docs/passthrough.md', import.meta.url), 'utf8');
  const [, section = ''] = page.split('## What is not offered');
  return Array.from(section.matchAll(/^\| `([^`]+)`/gm), ([, row = '']) => row);
}

const isNamed = (call: string, row: string): boolean => {
  const [, path = ''] = call.split(' ');
  return row.includes(' ') ? row === call : path === row || path.startsWith(`${row}/`);
};

async function isOffered(call: string): Promise<boolean> {
  const [method = '', path = ''] = call.split(' ');
  const response = await fetch(gateway.url + path.replaceAll('{}', 'x_1'), {
    method,
    headers: { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' },
    ...(method === 'POST' ? { body: '{}' } : {}),
  });
  return !/"code":"(?:unknown_url|method_not_allowed)"/.test(await response.text());
}

test('each call of the official package is offered, or named as not offered', async () => {
  const calls = callsOfThePackage();
  expect(calls.length).toBeGreaterThan(150);
  const rows = notOffered();
  const offered: string[] = [];
  for (const call of calls) if (await isOffered(call)) offered.push(call);
  const named = calls.filter((call) => rows.some((row) => isNamed(call, row)));
  expect(calls.filter((call) => !offered.includes(call) && !named.includes(call))).toEqual([]);
  expect(offered.filter((call) => named.includes(call))).toEqual([]);
  expect(offered).toContain('POST /v1/videos/{}/remix');
  // Nothing is named that is no longer in the package.
  expect(rows.filter((row) => !calls.some((call) => isNamed(call, row)))).toEqual([]);
});

const picture = () => toFile(Buffer.from('picture'), 'a.png');

test('containers, skills and videos are created, listed and ended by their holder', async () => {
  upstream.asked.length = 0;
  const container = await one.containers.create({ name: 'c' });
  const inside = await one.containers.files.create(container.id, { file: await picture() });
  expect(await one.containers.files.retrieve(inside.id, { container_id: container.id })).toBeDefined();
  const skill = await one.skills.create({ files: [await toFile(Buffer.from('# a'), 'a/SKILL.md')] });
  expect(await one.skills.versions.create(skill.id, { files: [await picture()] })).toBeDefined();
  const video = await one.videos.create({
    prompt: 'A calm sea',
    model: 'sora-2',
    input_reference: await picture(),
  });
  const remix = await one.videos.remix(video.id, { prompt: 'A rough sea' });
  const longer = await one.videos.extend({ video: { id: video.id }, prompt: 'More of it', seconds: '4' });
  const cut = await one.videos.edit({ video: { id: longer.id }, prompt: 'Less of it' });
  const character = await one.videos.createCharacter({ name: 'Ann', video: await picture() });
  expect(character.id).toMatch(/^char_/);
  expect((await (await one.videos.downloadContent(video.id)).text()).length).toBeGreaterThan(0);
  const listed = (await one.videos.list()).data.map(({ id }) => id);
  expect(listed.sort()).toEqual([video.id, remix.id, longer.id, cut.id].sort());
  expect((await one.containers.list()).data.map(({ id }) => id)).toEqual([container.id]);
  expect((await one.skills.list()).data.map(({ id }) => id)).toEqual([skill.id]);
  expect((await other.videos.list()).data).toEqual([]);
  await one.videos.delete(cut.id);
  await expect(one.videos.retrieve(cut.id)).rejects.toMatchObject({ status: 404 });
  const made = upstream.asked.find(({ url, method }) => url === '/v1/videos' && method === 'POST');
  expect(made?.text).toMatch(/name="prompt"\r\n\r\nA calm sea\r\n/);
});

test("another holder's are not found, however a path, a body or a form names them", async () => {
  const file = (await one.files.create({ file: await picture(), purpose: 'vision' })).id;
  const container = (await one.containers.create({ name: 'c' })).id;
  const skill = (await one.skills.create({ files: [await picture()] })).id;
  const video = (await one.videos.create({ prompt: 'A calm sea' })).id;
  const character = (await one.videos.createCharacter({ name: 'Ann', video: await picture() })).id ?? '';
  const mine = (await other.containers.create({ name: 'm' })).id;
  const form = (...fields: readonly (readonly [head: string, value: string])[]) => ({
    type: 'multipart/form-data; boundary=b',
    body: `${fields.map(([head, value]) => `--b\r\ncontent-disposition: form-data; ${head}\r\n\r\n${value}\r\n`).join('')}--b--\r\n`,
  });
  const json = (value: object) => ({ type: 'application/json', body: JSON.stringify(value) });
  const prompt = ['name="prompt"', 'A sea'] as const;
  const attempts: readonly (readonly [call: string, sent?: { type: string; body: string }])[] = [
    [`GET /v1/containers/${container}`],
    [`DELETE /v1/containers/${container}`],
    [`GET /v1/containers/${container}/files`],
    [`GET /v1/containers/${mine}/files/${file}/content`],
    [`GET /v1/skills/${skill}/content`],
    [`GET /v1/skills/${skill}/versions/1`],
    [`GET /v1/videos/${video}`],
    [`GET /v1/videos/${video}/content`],
    [`DELETE /v1/videos/${video}`],
    [`GET /v1/videos/characters/${character}`],
    [`POST /v1/videos/${video}/remix`, json({ prompt: 'A sea' })],
    ['POST /v1/videos/edits', json({ prompt: 'A sea', video: { id: video } })],
    ['POST /v1/videos/edits', form(prompt, ['name="video[id]"', video])],
    ['POST /v1/videos/extensions', form(['name="video"', `{"id":"${video}"}`], prompt)],
    ['POST /v1/videos', form(prompt, ['name="input_reference[file_id]"', file])],
    ['POST /v1/videos', form(prompt, ['name="input_reference%5Bfile_id%5D"', file])],
    ['POST /v1/videos', form(prompt, ['name="characters[0][id]"', character])],
    ['POST /v1/videos', json({ prompt: 'A sea', input_reference: { file_id: file } })],
    ['POST /v1/containers', json({ name: 'c', file_ids: [file] })],
    ['POST /v1/containers', json({ name: 'c', skills: [{ type: 'skill_reference', skill_id: skill }] })],
    [`POST /v1/containers/${mine}/files`, json({ file_id: file })],
    [`POST /v1/containers/${mine}/files`, form(['name="file_id"', file])],
    [`POST /v1/containers/${mine}/files`, form(['name="file_id"', ` ${file}\0`])],
    [`POST /v1/containers/${container}/files`, form(['name="file"; filename="a"', 'x'])],
  ];
  for (const [call, sent] of attempts) {
    upstream.asked.length = 0;
    const [method = '', path = ''] = call.split(' ');
    const response = await fetch(gateway.url + path, {
      method,
      headers: {
        authorization: `Bearer ${keys[1]}`,
        ...(sent === undefined ? {} : { 'content-type': sent.type }),
      },
      ...(sent === undefined ? {} : { body: sent.body }),
    });
    const text = await response.text();
    expect([call, sent?.body, response.status, JSON.parse(text).error?.code]).toEqual([
      call,
      sent?.body,
      404,
      'object_not_found',
    ]);
    expect(upstream.asked).toEqual([]);
  }
});

test.each([
  ['another charset', 'content-type: text/plain; charset=utf-16', 400, 'invalid_form'],
  ['JSON in a field', 'content-type: application/json', 400, 'invalid_form'],
  ['UTF-8', 'content-type: text/plain; charset=utf-8', 200, undefined],
])('a field of a form in %s is read alike, or refused', async (_what, type, status, code) => {
  const body = `--b\r\ncontent-disposition: form-data; name="prompt"\r\n${type}\r\n\r\nA sea\r\n--b--\r\n`;
  const headers = { authorization: `Bearer ${keys[0]}`, 'content-type': 'multipart/form-data; boundary=b' };
  const response = await fetch(`${gateway.url}/v1/videos`, { method: 'POST', headers, body });
  const text = await response.text();
  expect([response.status, JSON.parse(text).error?.code]).toEqual([status, code]);
});

test('fields of more than 1 MiB are refused, and a file of that size is not', async () => {
  const headers = { authorization: `Bearer ${keys[0]}`, 'content-type': 'multipart/form-data; boundary=b' };
  const statusOf = async (name: string) => {
    const field = (head: string, text: string) =>
      `--b\r\ncontent-disposition: form-data; name=${head}\r\n\r\n${text}\r\n`;
    const body = `${field('"prompt"', 'A sea')}${field(name, ' '.repeat(1024 * 1024))}--b--\r\n`;
    const response = await fetch(`${gateway.url}/v1/videos`, { method: 'POST', headers, body });
    await response.arrayBuffer();
    return response.status;
  };
  expect(await statusOf('"prompt_2"')).toBe(413);
  expect(await statusOf('"input_reference"; filename="a"')).toBe(200);
});

test('a call that runs a model without a price is rejected where a budget could not count it', async () => {
  const key = await gateway.issueKey('Lite');
  const client = new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
  upstream.asked.length = 0;
  await expect(client.videos.create({ prompt: 'a' })).rejects.toMatchObject({
    status: 403,
    code: 'model_unpriced',
  });
  expect(upstream.asked).toEqual([]);
  expect((await client.containers.create({ name: 'a' })).id).toMatch(/^cntr_/);
  expect((await one.videos.create({ prompt: 'a' })).id).toMatch(/^video_/);
});
