// What a release must say the same of everywhere: its version, its changes, its links.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT } from '../e2e/program.ts';

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const { version } = JSON.parse(read('package.json'));

/** As GitHub makes them of headings. */
const anchors = (text: string): readonly string[] =>
  Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );

/** Links to files and headings of the repository that lead nowhere. */
function deadLinks(file: string): readonly string[] {
  return Array.from(
    read(file).matchAll(/\]\((?!https?:|mailto:)([^)\s]+)\)/g),
    ([, link = '']) => link,
  ).filter((link) => {
    const [path = '', anchor] = link.split('#');
    const target = path === '' ? file : join(dirname(file), path);
    if (!existsSync(join(ROOT, target))) return true;
    return anchor !== undefined && !anchors(read(target)).includes(anchor);
  });
}

describe('documents', () => {
  const guides = readdirSync(join(ROOT, 'docs')).filter((file) => file.endsWith('.md'));
  test.each([
    'README.md',
    'CHANGELOG.md',
    'SECURITY.md',
    'CONTRIBUTING.md',
    ...guides.map((file) => `docs/${file}`),
  ])('%s: every link leads somewhere', (file) => {
    expect(deadLinks(file)).toEqual([]);
  });

  test('the README leads to the changelog and to how a vulnerability is reported', () => {
    for (const file of ['CHANGELOG.md', 'SECURITY.md', 'CONTRIBUTING.md'])
      expect(read('README.md')).toContain(`](${file})`);
    expect(read('SECURITY.md')).toContain('Report a vulnerability');
  });

  test('the changelog begins with this version, dated or unreleased, and knows only the kinds of changes', () => {
    const [first = ''] = /^## .*$/m.exec(read('CHANGELOG.md')) ?? [];
    expect(first).toMatch(/^## \[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d|unreleased)$/);
    expect(first).toContain(`[${version}]`);
    const kinds = Array.from(read('CHANGELOG.md').matchAll(/^### (.+)$/gm), ([, kind = '']) => kind);
    expect(['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security']).toEqual(
      expect.arrayContaining(kinds),
    );
  });

  test('the image, the examples and SECURITY.md are about this version', () => {
    expect(read('Dockerfile')).toContain(`image.version="${version}"`);
    expect(read('examples/compose.yaml')).toContain(`image: tollgate:${version}\n`);
    expect(read('examples/kubernetes/kustomization.yaml')).toContain(`newTag: ${version}\n`);
    for (const field of ['version', 'appVersion'])
      expect(read('examples/helm/tollgate/Chart.yaml')).toContain(`\n${field}: ${version}\n`);
    expect(read('README.md')).toContain(`npm install ./tollgate-${version}.tgz\n`);
    expect(read('SECURITY.md')).toContain(`| ${version.split('.').slice(0, 2).join('.')}.x | yes |`);
  });
});
