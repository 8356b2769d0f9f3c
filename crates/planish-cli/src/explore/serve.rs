//! `--serve`: the page for browsers on this machine, and for nobody else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::ending::Answer;

/// A browser that says nothing for this long is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than a browser's request has.
const MOST_REQUEST: u64 = 64 << 10;

/// Serves until interrupted.
pub(super) fn page(html: &str, port: u16, out: &mut dyn Write) -> Result<Answer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("cannot serve on port {port} of this machine; give another --port"))?;
    let port = listener.local_addr().context("the port is not known")?.port();
    writeln!(out, "page     http://127.0.0.1:{port}/ until Ctrl-C")?;
    out.flush()?;
    for stream in listener.incoming().flatten() {
        // A browser that leaves is none of our business.
        let _ = answer(&stream, html, port);
    }
    Ok(Answer::Yes)
}

fn answer(mut stream: &TcpStream, html: &str, port: u16) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(MOST_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut host = None;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = Some(value.trim().to_string());
        }
    }
    let (status, body) = respond(&request, host.as_deref(), port, html);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

/// What a request gets. One for another host comes from a page elsewhere whose name was pointed here.
fn respond<'a>(request: &str, host: Option<&str>, port: u16, html: &'a str) -> (&'static str, &'a str) {
    let is_ours =
        [format!("127.0.0.1:{port}"), format!("localhost:{port}")].iter().any(|own| host == Some(own));
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (is_ours, method, path.split('?').next()) {
        (false, _, _) => ("403 Forbidden", "not this host\n"),
        (true, "GET", Some("/")) => ("200 OK", html),
        (true, "GET", _) => ("404 Not Found", "not here\n"),
        _ => ("405 Method Not Allowed", "GET alone\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_gets_the_page() {
        let status = |request: &str, host: Option<&str>| respond(request, host, 80, "page").0;
        assert_eq!(respond("GET / HTTP/1.1", Some("127.0.0.1:80"), 80, "page"), ("200 OK", "page"));
        assert_eq!(status("GET /?layer=3 HTTP/1.1", Some("localhost:80")), "200 OK");
        assert_eq!(status("GET /favicon.ico HTTP/1.1", Some("localhost:80")), "404 Not Found");
        assert_eq!(status("GET / HTTP/1.1", Some("evil.example")), "403 Forbidden");
        assert_eq!(status("GET / HTTP/1.1", None), "403 Forbidden");
        assert_eq!(status("POST / HTTP/1.1", Some("localhost:80")), "405 Method Not Allowed");
        assert_eq!(status("", Some("localhost:80")), "405 Method Not Allowed");
    }
}
