// Emptying the buffer of an earlier stay: its proxy is asked until it has nothing that is needed.

const AGAIN = 300; // after a refusal
const POLL = 200; // until a buffer that did not have what is lacking is asked again
const LINGER = 3_000; // how long it may go on not having it
const PATIENCE = 60_000; // how long its proxy may be unreachable

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// `ask({life, after})` promises an answer of the proxy, `wanted()` says whether it is still needed,
// `offer(batch)` takes what came. The promise is for the reason why something may be missing, "" if
// there is none.
export async function emptied(ask, wanted, offer) {
  const began = performance.now();
  let [heard, life, after] = [began, 0, 0];
  while (wanted()) {
    const asked = performance.now();
    const answer = await Promise.race([ask({ life, after }), pause(PATIENCE - (asked - heard))]);
    if (!answer) return "unreachable";
    if (answer.code === "forbidden") return "a proxy that may not be reached";
    if (answer.type !== "batch") {
      await pause(AGAIN);
      continue;
    }
    heard = performance.now();
    // In another life of the proxy serial numbers begin anew.
    if (answer.life !== life) [life, after] = [answer.life ?? 0, 0];
    after = Math.max(after, answer.last ?? 0);
    if (wanted()) offer(answer);
    if (answer.state === "expired") return "time to keep";
    if (answer.state !== "kept") return "nothing is kept";
    if (!answer.more && asked - began > LINGER) return answer.dropped ? "quota" : "history";
    await pause(answer.more && answer.items?.length ? 0 : POLL);
  }
  return "";
}
