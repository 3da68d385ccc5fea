// The clients for Java: the official SDK, and the JDK's HttpClient. They are programs of one file, which `java` compiles itself.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installed } from '../installs.ts';
import { runProgram } from '../program.ts';
import { CALLS, type ComparedClient } from '../types.ts';
import { plainClient } from './plain.ts';
import { programVersion } from './toolchain.ts';

const run = promisify(execFile);

const DOWNLOAD_MS = 600_000;
const file = (name: string): string => fileURLToPath(new URL(`java/${name}`, import.meta.url));
const COPY = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies';

const javaVersion = (): Promise<string> => programVersion('java', ['--version'], /(\d+(?:\.\d+)*)/);

/** A folder with the SDK and all that it needs. */
async function jars(): Promise<string> {
  await programVersion('mvn', ['--version'], /(\d+\.\S+)/);
  return await installed('java', [file('pom.xml')], async (folder) => {
    await run('mvn', ['-B', '-q', '-f', file('pom.xml'), COPY, `-DoutputDirectory=${folder}`], {
      timeout: DOWNLOAD_MS,
    });
  });
}

let folder = '';

const sdk: ComparedClient = {
  name: 'openai-java',
  version:
    /<artifactId>openai-java<\/artifactId>\s*<version>(.*?)</.exec(
      readFileSync(file('pom.xml'), 'utf8'),
    )?.[1] ?? '',
  calls: CALLS,
  prepare: async () => {
    await javaVersion();
    folder = await jars();
  },
  run: (target, calls) => runProgram('java', ['-cp', join(folder, '*'), file('Sdk.java')], target, calls),
};

const httpClient = plainClient({
  name: 'HttpClient (JDK)',
  prepare: javaVersion,
  command: 'java',
  words: [file('Plain.java')],
});

export const javaClients: readonly ComparedClient[] = [sdk, httpClient];
