// Requests to the world's server. A refusal becomes an Error whose message a person can read.

const PATIENCE = 20_000;

async function ask(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE),
      cache: "no-store",
    });
  } catch {
    throw new Error("The world does not answer. Is psph up still running?");
  }
  const said = await answer.text();
  const { ok, status } = answer;
  if (!ok) throw Object.assign(new Error(reason(status, said)), { status });
  try {
    return said ? JSON.parse(said) : null;
  } catch {
    return null;
  }
}

function reason(status, said) {
  if (status === 401) return "Open the address that psph up printed, with its token.";
  let line = said;
  try {
    line = JSON.parse(said).error ?? said;
  } catch {
    // plain text already
  }
  line = String(line).trim().slice(0, 300);
  return line ? `${line[0].toUpperCase()}${line.slice(1)}` : `The world answered ${status}.`;
}

export const read = (path) => ask("GET", path);
export const put = (path, body) => ask("PUT", path, body);
export const post = (path, body) => ask("POST", path, body);

// Also sent while the page is being left; the answer is not read.
export const remove = (path) => fetch(path, { method: "DELETE", keepalive: true }).catch(() => {});
