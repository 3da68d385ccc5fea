// docs/tracing.md names every field of the access log and every variable that is read.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const read = (file: string): string => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
const page = read('docs/tracing.md');

test.each([
  [
    'src/telemetry/log/access-log.ts',
    /^ {2}(?:readonly )?(\w+)(?:: (?:string|number|boolean)[a-z| ]*| = 0);$/gm,
    20,
  ],
  ['src/telemetry/traces/trace-settings.ts', /'(OTEL_\w+)'/g, 12],
  [
    'src/telemetry/traces/otlp-tracer.ts',
    /'((?:http|url|network|tollgate|error|gen_ai|server)\.[a-z_.]+)'/g,
    15,
  ],
])('the metrics in %s exist', (file, pattern, least) => {
  const names = [...new Set(Array.from(read(file).matchAll(pattern), ([, name]) => name ?? ''))];
  expect(names.length).toBeGreaterThanOrEqual(least);
  // `gen_ai.usage.input_tokens`, `.output_tokens`: what is said once is not repeated.
  const isNamed = (name: string) =>
    page.includes(`\`${name}\``) || page.includes(`\`${name.replace(/^gen_ai\.usage/, '')}\``);
  expect(names.filter((name) => !isNamed(name))).toEqual([]);
});
