// What production is made of: its bill of materials, its licences, and what the audit says of answers of every kind.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { verdictOf } from '../../tools/audit.ts';
import { billOfMaterials } from '../../tools/sbom.ts';
import { ROOT } from '../e2e/program.ts';
import { tempDir } from '../helpers/wait.ts';
import { productionPackages } from './installed.ts';
import { at, items, textAt } from './tree.ts';

/** Those that ask for no more than their text being passed on. */
const PERMISSIVE = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'Unlicense',
]);

/** Whether an SPDX expression can be met with permissive licences alone. */
function isPermissive(licence: string): boolean {
  const bare = licence.trim().replace(/^\(([^()]*)\)$/, '$1');
  if (/\sOR\s/.test(bare)) return bare.split(/\sOR\s/).some(isPermissive);
  if (/\sAND\s/.test(bare)) return bare.split(/\sAND\s/).every(isPermissive);
  return PERMISSIVE.has(bare);
}

const packages = productionPackages();

describe('licences', () => {
  test.each([
    ['MIT', true],
    ['(MIT OR GPL-3.0-only)', true],
    ['MIT AND GPL-3.0-only', false],
    ['GPL-3.0-only', false],
    ['SEE LICENSE IN LICENSE.txt', false],
    ['UNLICENSED', false],
    ['', false],
  ])('%j', (licence, expected) => expect(isPermissive(licence)).toBe(expected));

  test('every package that production installs has a permissive one, by its own word', () => {
    expect(packages.length).toBeGreaterThan(50);
    const others = packages.flatMap(({ path, name }) => {
      const { license } = JSON.parse(readFileSync(join(ROOT, path, 'package.json'), 'utf8'));
      const licence = typeof license === 'string' ? license : textAt(license, 'type');
      return isPermissive(licence) ? [] : [`${name}: ${licence}`];
    });
    expect(others).toEqual([]);
  });
});

describe('the bill of materials', () => {
  test('names every package of production with version, digest and licence, and none of development', () => {
    const bill: unknown = JSON.parse(billOfMaterials());
    expect([at(bill, 'bomFormat'), textAt(bill, 'metadata', 'component', 'name')]).toEqual([
      'CycloneDX',
      'tollgate',
    ]);
    const { version, dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    expect(textAt(bill, 'metadata', 'component', 'version')).toBe(version);
    const listed = items(bill, 'components');
    const names = listed.map((each) => textAt(each, 'purl').replaceAll('%40', '@').replace('pkg:npm/', ''));
    // Packages for other platforms are in it as well: somebody may install them.
    expect(names).toEqual(
      expect.arrayContaining([...new Set(packages.map((each) => `${each.name}@${each.version}`))]),
    );
    for (const each of listed) {
      expect(textAt(each, 'hashes', 0, 'alg'), textAt(each, 'name')).toBe('SHA-512');
      expect(items(each, 'licenses'), textAt(each, 'name')).not.toEqual([]);
    }
    for (const name of ['typescript', 'vitest', 'node']) {
      expect(listed.map((each) => textAt(each, 'name'))).not.toContain(name);
    }
    const refs = new Set([
      textAt(bill, 'metadata', 'component', 'bom-ref'),
      ...listed.map((each) => textAt(each, 'bom-ref')),
    ]);
    const edges = items(bill, 'dependencies').flatMap((each) => [
      at(each, 'ref'),
      ...items(each, 'dependsOn'),
    ]);
    expect(edges.filter((each) => !refs.has(String(each)))).toEqual([]);
    const roots = items(
      items(bill, 'dependencies').find((each) => textAt(each, 'ref') === `tollgate@${version}`),
      'dependsOn',
    );
    expect(roots).toHaveLength(Object.keys(dependencies).length);
  });
});

describe('the audit', () => {
  const said = (report: unknown, code = 0, stderr = '') => ({
    code,
    stdout: typeof report === 'string' ? report : JSON.stringify(report),
    stderr,
  });
  const counts = (total: number) => ({ info: 0, low: total, moderate: 0, high: 0, critical: 0, total });
  const clean = {
    vulnerabilities: {},
    metadata: { vulnerabilities: counts(0), dependencies: { prod: 101 } },
  };

  test('clean is what the registry calls so', () => {
    expect(verdictOf(said(clean))).toEqual({ outcome: 'clean', packages: 101 });
  });

  test('anything found is named, however slight', () => {
    const report = {
      vulnerabilities: { left: { name: 'left', severity: 'low', range: '<1.0.0' } },
      metadata: { vulnerabilities: counts(1), dependencies: { prod: 101 } },
    };
    expect(verdictOf(said(report, 1))).toEqual({ outcome: 'vulnerable', found: ['left <1.0.0 (low)'] });
  });

  test.each([
    [
      'a registry without audits',
      said({ message: '405 Method Not Allowed', statusCode: 405, error: {} }, 1),
      /^405/,
    ],
    ['no network', said({ error: { code: 'ENOTFOUND', summary: 'getaddrinfo ENOTFOUND' } }, 1), /ENOTFOUND/],
    ['no JSON', said('<html>', 1, 'npm error something\nmore'), /^npm error something$/],
    ['nothing', said('', 0), /nothing that can be understood/],
    ['no end', { code: null, stdout: '', stderr: '' }, /in time/],
    [
      'a report of nothing',
      said({ ...clean, metadata: { vulnerabilities: counts(0), dependencies: { prod: 0 } } }),
      /no package/,
    ],
    ['counts without a sum', said({ metadata: { vulnerabilities: { low: 0 } } }), /./],
  ])('%s is neither clean nor vulnerable', (_name, answer, reason) => {
    const verdict = verdictOf(answer);
    expect(verdict).toEqual({ outcome: 'unknown', reason: expect.stringMatching(reason) });
  });

  test.each([
    ['a warning and 0 in daily work', [], 0],
    ['1 where an answer is required', ['--required'], 1],
  ])('without an answer: %s', async (_name, words, code) => {
    await using folder = await tempDir();
    // An npm that reaches nobody, whatever this machine reaches.
    const env = {
      ...process.env,
      npm_execpath: '',
      npm_config_registry: 'http://127.0.0.1:9/',
      HOME: folder.path,
    };
    const outcome = await promisify(execFile)(process.execPath, [join(ROOT, 'tools/audit.ts'), ...words], {
      cwd: ROOT,
      env,
    })
      .then(({ stderr }) => ({ code: 0, stderr }))
      .catch((error: unknown) => ({ code: at(error, 'code'), stderr: textAt(error, 'stderr') }));
    expect(outcome.code).toBe(code);
    expect(outcome.stderr).toMatch(/NOT CHECKED.*\n.*no clean result/);
  });
});
