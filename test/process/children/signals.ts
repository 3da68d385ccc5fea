// A process that prints its signals. `late` starts to listen when a line arrives on stdin, all others at once.
import { once } from 'node:events';
import { Signals } from '../../../src/process/signals.ts';

const [, , when] = process.argv;
const say = (text: string) => process.stdout.write(`${text}\n`);
// Something that keeps it alive, as a listener would.
const alive = setInterval(() => undefined, 1_000);

const signals = new Signals();
say('listening');
if (when === 'late') {
  const looking = setInterval(() => {
    if (!signals.isStopped) return;
    say('asked to stop');
    clearInterval(looking);
  }, 10);
  await once(process.stdin, 'data');
}
const hurried = Promise.withResolvers<void>();
signals.listen({
  onSecondStop: () => {
    say('hurry');
    hurried.resolve();
  },
  onReload: () => say('reload'),
  onRejection: (reason) => say(`rejection ${String(reason)}`),
  onFault: (error) => say(`fault ${String(error)}`),
});
if (when === 'reject') void Promise.reject('lost work');
if (when === 'throw') {
  for (let time = 0; time < 2; time += 1) {
    setImmediate(() => {
      throw 'thrown';
    });
  }
}
const reason = await signals.stopped;
say(`stopped ${reason.kind} ${String(reason.kind === 'signal' ? reason.name : reason.error)}`);
if (when === 'stay') await hurried.promise;
clearInterval(alive);
process.stdin.unref();
process.stdin.destroy();
