// What reaches the process from outside while it runs, from the first moment on: a signal that comes before everything is
// started is kept, because by default it would end the process in the middle of something.
import { closeSync, openSync } from 'node:fs';
import { constants } from 'node:os';

type StopReason = { readonly kind: 'signal'; readonly name: NodeJS.Signals } | Fault;

/** An exception that nothing caught. Nobody knows what it left half done. */
interface Fault {
  readonly kind: 'fault';
  readonly error: unknown;
}

interface SignalListeners {
  /** Asked to stop again, after `stopped`: what is left is to be ended at once. */
  readonly onHurry: () => void;
  /** SIGHUP: the configuration is to be read. */
  readonly onReload: () => void;
  /** A promise failed and nobody waited for it: one piece of work is lost, and nothing else is in doubt. */
  readonly onRejection: (reason: unknown) => void;
  /** An exception beyond the first one, which is the reason of `stopped`. */
  readonly onFault: (error: unknown) => void;
}

/** How long a start may go on that was told to stop. */
const START_PATIENCE_MS = 3_000;

/** Listens from its making on. There is one in a process that serves; with several processes it is the primary's. */
export class Signals {
  /** Resolves at the first reason to stop. */
  readonly stopped: Promise<StopReason>;
  readonly #stop: (reason: StopReason) => void;
  #listeners: SignalListeners | undefined;
  #isStopped = false;
  #hasHangup = false;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<StopReason>();
    this.stopped = promise;
    this.#stop = resolve;
    const onStop = (name: NodeJS.Signals) => {
      if (!this.#isStopped) {
        this.#end({ kind: 'signal', name });
        this.#leaveUnlessStarted(128 + constants.signals[name]);
      } else if (this.#listeners !== undefined) this.#listeners.onHurry();
      // Twice while it starts: nothing was served, so nothing has to be ended well.
      else process.exit(1);
    };
    process.on('SIGTERM', onStop).on('SIGINT', onStop);
    const hadTerminal = hasTerminal();
    process.on('SIGHUP', () => {
      // Somebody closed the window in which it was started, and asks for no reload.
      if (hadTerminal && !hasTerminal()) onStop('SIGHUP');
      else if (this.#listeners === undefined) this.#hasHangup = true;
      else this.#listeners.onReload();
    });
    process.on('uncaughtException', (error) => {
      if (this.#isStopped) this.#listeners?.onFault(error);
      else this.#end({ kind: 'fault', error });
    });
    process.on('unhandledRejection', (reason) => {
      if (this.#listeners !== undefined) this.#listeners.onRejection(reason);
      else this.#end({ kind: 'fault', error: reason });
    });
  }

  /** Whether somebody asked to stop. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** From now on there is somebody to tell; a SIGHUP that came before is told now. */
  attend(listeners: SignalListeners): void {
    this.#listeners = listeners;
    if (this.#hasHangup) listeners.onReload();
    this.#hasHangup = false;
  }

  /** A start that waits for something does not keep the process: as process 1 it could not be ended in another way. */
  #leaveUnlessStarted(code: number): void {
    if (this.#listeners !== undefined) return;
    setTimeout(() => this.#listeners ?? process.exit(code), START_PATIENCE_MS).unref();
  }

  #end(reason: StopReason): void {
    this.#isStopped = true;
    this.#stop(reason);
  }
}

/** Whether this process has a controlling terminal now. */
function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}
