// Signals, uncaught exceptions and unhandled rejections, in a child process.
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { Program } from '../e2e/program.ts';

const CHILD = fileURLToPath(new URL('./children/signals.ts', import.meta.url));

function child(when: string): Program {
  return new Program([CHILD, when]);
}

describe('a process that listens for signals', () => {
  test('keeps a SIGHUP and a SIGTERM that arrive before its listeners', async () => {
    await using program = child('late');
    await program.wrote(/listening/, 'stdout');
    program.child.kill('SIGHUP');
    program.child.kill('SIGTERM');
    await program.wrote(/asked to stop/, 'stdout');
    program.child.stdin.write('attend\n');
    await program.wrote(/reload\n(.*\n)*stopped signal SIGTERM/, 'stdout');
    expect((await program.end()).code).toBe(0);
  });

  test('exits at once at a second stop signal during the start', async () => {
    await using program = child('late');
    await program.wrote(/listening/, 'stdout');
    program.child.kill('SIGTERM');
    await program.wrote(/asked to stop/, 'stdout');
    program.child.kill('SIGINT');
    expect(await program.end()).toMatchObject({ code: 1, signal: null });
  });

  test('stops at once at the second stop signal', async () => {
    await using program = child('stay');
    await program.wrote(/listening/, 'stdout');
    program.child.kill('SIGTERM');
    await program.wrote(/stopped signal SIGTERM/, 'stdout');
    program.child.kill('SIGTERM');
    await program.wrote(/hurry/, 'stdout');
    expect((await program.end()).code).toBe(0);
  });

  test('an unhandled rejection is reported and does not stop the process', async () => {
    await using program = child('reject');
    await program.wrote(/rejection lost work/, 'stdout');
    program.child.kill('SIGTERM');
    await program.wrote(/stopped signal/, 'stdout');
  });

  test('an uncaught exception is a reason to stop; a second one is reported', async () => {
    await using program = child('throw');
    await program.wrote(/stopped fault thrown/, 'stdout');
    await program.wrote(/fault thrown/, 'stdout');
  });
});
