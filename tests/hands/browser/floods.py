"""Pages that do one thing without end. None of them waits for anything."""

from collections.abc import Mapping

_LONG = "const long='x'.repeat(1900000);"


def _page(script: str) -> str:
    return f"<!doctype html><title>Flood</title><p>flooding</p><script>{script}</script>"


def _again(script: str, times: int) -> str:
    """Many times a turn, in turns without end."""
    return _page(f"let n=0;setInterval(()=>{{for(let i=0;i<{times};i++){{{script}}}}},1)")


FLOODS: Mapping[str, str] = {
    "reload": _page("location.reload()"),
    "refresh": "<!doctype html><meta http-equiv=refresh content=0><p>flooding</p>",
    "addresses": _again("history.pushState(0,'','/push?'+(n++))", 100),
    "long-addresses": _page(
        f"{_LONG}let n=0;setInterval(()=>{{for(let i=0;i<20;i++)"
        "history.pushState(0,'','/push?'+(n++)+long)},1)"
    ),
    "hashes": _again("location.hash=n++", 500),
    "console": _page(f"{_LONG}setInterval(()=>{{for(let i=0;i<50;i++)console.log(long)}},1)"),
    "small-console": _again("console.log('x',n++)", 5000),
    "objects": _again("console.log({a:[1,2],b:'y'.repeat(10000)},document)", 500),
    "errors": _again("setTimeout(()=>{throw new Error('x'.repeat(100000))})", 200),
    "titles": _again("document.title='x'.repeat(10000)+n++", 500),
    "frames": _again("document.body.appendChild(document.createElement('iframe'))", 20),
    "workers": _again("new Worker(URL.createObjectURL(new Blob(['1'])))", 20),
    "posts": _again("postMessage('x'.repeat(1000000))", 100),
    "prints": _again("print()", 1),
    "alerts": _page("for(;;)alert('again')"),
    "leaving": _page(
        "onbeforeunload=e=>{e.preventDefault();return 'x'};"
        "setInterval(()=>{location='/other?'+Math.random()},1)"
    ),
    "fetches": _again("fetch('/other?'+n++)", 200),
    "sockets": _again("new WebSocket('ws://'+location.host+'/other')", 200),
    "files": _again("location='file:///'+n++", 200),
    "tabs": _again("open('/other')", 10),
}
