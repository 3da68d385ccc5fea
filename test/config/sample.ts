// Configurations for the tests of this folder, and short ways to load them.
import { ConfigError, type ConfigFault, parseConfig } from '../../src/config/load-config.ts';
import type { Config } from '../../src/config/schema/config-schema.ts';

export const FILE = 'config.yaml';

/** The smallest file that is valid. */
export const MINIMAL =
  'upstreams: { demo: { builtin: echo } }\nmodels: { echo: { targets: [{ upstream: demo, model: echo }] } }\n';

export function load(text: string, env: NodeJS.ProcessEnv = {}): Config {
  return parseConfig(text, FILE, env);
}

/** MINIMAL with more lines before it. */
export const extended = (lines: string, env: NodeJS.ProcessEnv = {}): Config =>
  load(`${lines}\n${MINIMAL}`, env);

/** One upstream `u` with these lines, and one model that uses it. */
export const withUpstream = (lines: string): string =>
  `models: { m: { targets: [{ upstream: u, model: x }] } }\nupstreams:\n  u:\n${lines.replaceAll(/^/gm, '    ')}\n`;

export function errorOf(run: () => unknown): ConfigError {
  try {
    run();
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error('the configuration was accepted');
}

export const faultsOf = (text: string, env: NodeJS.ProcessEnv = {}): readonly ConfigFault[] =>
  errorOf(() => load(text, env)).faults;

/** `LINE:COLUMN message` of every fault. */
export const placesOf = (text: string, env: NodeJS.ProcessEnv = {}): readonly string[] =>
  faultsOf(text, env).map(({ line, column, message }) => `${line}:${column} ${message}`);

/** The faults of lines put before a valid rest. */
export const placesBefore = (lines: string, env: NodeJS.ProcessEnv = {}): readonly string[] =>
  placesOf(`${lines}\n${MINIMAL}`, env);
