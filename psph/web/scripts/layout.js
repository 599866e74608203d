// Where nodes stand on the map: the same graph gives the same picture, whoever looks.
//
// The two anchors stand at the ends, everybody else in columns by how much nearer it is to one end
// than to the other. Within a column the order is found by exchanging neighbours as long as the
// picture gets better: fewer crossings, fewer links that run through foreign nodes. A graph without
// two anchors is a circle. With a few dozen nodes that takes milliseconds.

const ROUNDS = 12;

function hops(names, links, start) {
  const neighbours = new Map(names.map((name) => [name, []]));
  for (const { a, b } of links) {
    neighbours.get(a)?.push(b);
    neighbours.get(b)?.push(a);
  }
  const found = new Map([[start, 0]]);
  for (const [name, away] of found) { // grows while it is walked
    for (const next of neighbours.get(name)) {
      if (neighbours.has(next) && !found.has(next)) found.set(next, away + 1);
    }
  }
  return (name) => found.get(name) ?? names.length;
}

const turn = (p, q, r) => (q.x - p.x) * (r.y - p.y) - (q.y - p.y) * (r.x - p.x);

function cross(p, q, r, s) {
  return turn(p, q, r) * turn(p, q, s) < 0 && turn(r, s, p) * turn(r, s, q) < 0;
}

function distance(point, p, q) {
  const square = (q.x - p.x) ** 2 + (q.y - p.y) ** 2 || 1e-9;
  const along = ((point.x - p.x) * (q.x - p.x) + (point.y - p.y) * (q.y - p.y)) / square;
  const part = Math.min(1, Math.max(0, along));
  return Math.hypot(point.x - p.x - part * (q.x - p.x), point.y - p.y - part * (q.y - p.y));
}

// Low is good. Length counts least: it decides between pictures that are equal otherwise.
function ugliness(places, links, room) {
  let sum = 0;
  const pairs = links.map(({ a, b }) => [a, b, places.get(a), places.get(b)]);
  pairs.forEach(([a, b, p, q], index) => {
    for (const [, , r, s] of pairs.slice(index + 1)) if (cross(p, q, r, s)) sum += 1;
    for (const [name, point] of places) {
      if (name !== a && name !== b) sum += 4 * Math.max(0, 1 - distance(point, p, q) / room);
    }
    sum += Math.hypot(p.x - q.x, p.y - q.y) / 1e4;
  });
  return sum;
}

function inColumns(columns, box, upright) {
  const places = new Map();
  columns.forEach((names, column) => {
    names.forEach((name, row) => {
      const along = columns.length > 1 ? column / (columns.length - 1) : 0.5;
      // Rows from edge to edge; an only one stands in the middle.
      const across = names.length > 1 ? row / (names.length - 1) : 0.5;
      const [x, y] = upright ? [across, along] : [along, across];
      places.set(name, { x: box.left + x * box.width, y: box.top + y * box.height });
    });
  });
  return places;
}

function inCircle(names, box) {
  return new Map(names.map((name, index) => {
    const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
    const [x, y] = [(Math.cos(angle) + 1) / 2, (Math.sin(angle) + 1) / 2];
    return [name, { x: box.left + x * box.width, y: box.top + y * box.height }];
  }));
}

// A Map from name to {x, y} within `box` {left, top, width, height}. The anchors stand at the left
// and right end, or at the top and the bottom of a box that is higher than wide.
export function layout(all, allLinks, anchors, box, room = 55) {
  const names = [...new Set(all)].sort();
  const links = allLinks.filter(({ a, b }) => names.includes(a) && names.includes(b));
  const [first, last] = anchors;
  const anchored = names.includes(first) && names.includes(last) && first !== last;
  if (!anchored) return inCircle(names, box);
  const [fromFirst, fromLast] = [hops(names, links, first), hops(names, links, last)];
  const rank = (name) => fromFirst(name) - fromLast(name);
  const others = names.filter((name) => name !== first && name !== last);
  const ranks = [...new Set(others.map(rank))].sort((one, other) => one - other);
  const between = ranks.map((each) => others.filter((name) => rank(name) === each));
  const columns = [[first], ...between, [last]];
  const upright = box.height > box.width;
  const score = () => ugliness(inColumns(columns, box, upright), links, room);
  let best = score();
  for (let round = 0, better = true; better && round < ROUNDS; round += 1) {
    better = false;
    for (const column of columns) {
      for (let i = 0; i < column.length; i += 1) {
        for (let j = i + 1; j < column.length; j += 1) {
          [column[i], column[j]] = [column[j], column[i]];
          const now = score();
          if (now < best - 1e-9) {
            best = now;
            better = true;
          } else [column[i], column[j]] = [column[j], column[i]];
        }
      }
    }
  }
  return inColumns(columns, box, upright);
}
