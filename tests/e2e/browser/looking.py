"""What a test asks a page about how it looks, in the page's own language."""

CONTRAST = """() => {
    const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const parse = (colour) => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, below) =>
        [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
    const behind = (element) => {
        const layers = [];
        for (let each = element; each; each = each.parentElement) {
            const colour = parse(getComputedStyle(each).backgroundColor);
            layers.push(colour);
            if (colour[3] === 1) break;
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    };
    const luminance = (colour) => {
        const [r, g, b] = colour.slice(0, 3).map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.textContent.trim();
        if (!text || !element.checkVisibility() || element.closest("svg, .unseen, .skip")) continue;
        if (element.closest("noscript, :disabled")) continue;
        const back = behind(element);
        const front = over(parse(getComputedStyle(element).color), back);
        const [dark, light] = [luminance(front), luminance(back)].sort((x, y) => x - y);
        const ratio = (light + 0.05) / (dark + 0.05);
        if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
    }
    return [faint, luminance(behind(document.body))];
}"""
"""Visible text with less contrast than WCAG asks for, and how bright the page is."""

OUTLINE = """(element) => {
    const outlined = (each) => getComputedStyle(each).outlineStyle !== "none";
    return outlined(element) || outlined(element.nextElementSibling ?? element);
}"""
"""Whether one sees that the element has the focus; of a radio it is the label that shows it."""
