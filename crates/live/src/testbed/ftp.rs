//! A file by FTP: curl on the client host, vsftpd on the server host.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::files::Source;
use super::servers::{find, Server, Shop};
use super::transfer::{Opens, Outcome, Transfer};
use super::workload::FtpMode;
use super::{Ends, LabError, Watch};

/// Stores the source file on the server. Returns what happened and where the server put the file.
///
/// # Errors
/// When a program is missing or can't be started.
pub fn upload(
    ends: &Ends<'_>,
    shop: &Shop,
    source: &Source,
    mode: FtpMode,
    limit: Duration,
    watch: Watch<'_>,
) -> Result<(Outcome, PathBuf), LabError> {
    let address = SocketAddr::new(ends.address, PORT);
    let _server = Server::vsftpd(ends.server, address, shop)?;
    let received = shop.upload.join("received.bin");
    let mut client = ends.client.command(&find("curl", "curl")?.to_string_lossy());
    client.args(["--silent", "--show-error", "--upload-file"]).arg(&source.path);
    client.args(mode_args(mode)).arg(format!("ftp://{address}/upload/received.bin"));
    let transfer = Transfer { client, opens: opens(mode), received: &received, total: source.bytes, limit };
    Ok((transfer.run(watch)?, received))
}

/// Fetches the source file, which lies in the root of the server, into `received`.
///
/// # Errors
/// When a program is missing or can't be started.
pub fn download(
    ends: &Ends<'_>,
    shop: &Shop,
    source: &Source,
    mode: FtpMode,
    limit: Duration,
    watch: Watch<'_>,
) -> Result<(Outcome, PathBuf), LabError> {
    let address = SocketAddr::new(ends.address, PORT);
    let _server = Server::vsftpd(ends.server, address, shop)?;
    let received = shop.private.join("received.bin");
    let name = source.path.file_name().unwrap_or_default().to_string_lossy();
    let mut client = ends.client.command(&find("curl", "curl")?.to_string_lossy());
    // Without --no-buffer the last kilobytes reach the file when the server has said goodbye, a round trip later.
    client.args(["--silent", "--show-error", "--no-buffer", "--output"]).arg(&received);
    client.args(mode_args(mode)).arg(format!("ftp://{address}/{name}"));
    let transfer = Transfer { client, opens: opens(mode), received: &received, total: source.bytes, limit };
    Ok((transfer.run(watch)?, received))
}

fn opens(mode: FtpMode) -> Opens {
    match mode {
        FtpMode::Passive => Opens::AfterPassiveReply,
        FtpMode::Active => Opens::ByAccepting,
    }
}

fn mode_args(mode: FtpMode) -> &'static [&'static str] {
    match mode {
        FtpMode::Passive => &[],
        // "-": the address of the control connection.
        FtpMode::Active => &["--ftp-port", "-"],
    }
}

const PORT: u16 = 21;
