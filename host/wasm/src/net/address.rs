//! Which addresses may be dialled, and the one form in which a host is compared and looked up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::NetError;
use crate::text::{MAX_NAME, clean};

/// A host in canonical form: two spellings of the same host are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// Lower case, in ASCII, without a dot at its end.
    Name(String),
    /// An address; an IPv4 address that was written as IPv6 is IPv4.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address, in brackets or not, as browsers do: numbers in any base, with fewer than four
    /// parts, fullwidth digits and dots are IPv4 addresses, and names in other scripts become ASCII. What holds more
    /// than a host (a user, a port, a path) is refused.
    ///
    /// # Errors
    /// [`NetError::BadHost`].
    pub(crate) fn parse(text: &str) -> Result<Self, NetError> {
        let bad = |detail: &str| Err(NetError::BadHost { host: clean(text, MAX_NAME), detail: detail.to_owned() });
        if text.is_empty() {
            return bad("it is empty");
        }
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = inner.parse::<Ipv6Addr>() {
            return Ok(Host::Address(plain(address.into())));
        }
        if text.contains(['@', '/', '\\', '?', '#', '%', ':', '[', ']']) {
            return bad("only a name or an address belongs here, without user, port or path");
        }
        match url::Host::parse(text) {
            Ok(url::Host::Ipv4(address)) => Ok(Host::Address(address.into())),
            Ok(url::Host::Ipv6(address)) => Ok(Host::Address(plain(address.into()))),
            Ok(url::Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                let labels_fit = name.split('.').all(|label| (1..=63).contains(&label.len()));
                match labels_fit && name.len() <= 253 {
                    true => Ok(Host::Name(name.to_owned())),
                    false => bad("a name has at most 253 characters, and 1 to 63 between two dots"),
                }
            }
            Err(error) => bad(&error.to_string()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}

/// `::ffff:a.b.c.d` is dialled as IPv4, so it is judged as IPv4.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The address as it is dialled, if it may be dialled: it is an ordinary public one, or `allow` has its range. An IPv6
/// address that stands for an IPv4 address (NAT64, 6to4, Teredo, the compatible form) is judged by that one as well.
/// Metadata services are granted by their single address only, as what they hand out opens everything else.
///
/// # Errors
/// In which special range it lies.
pub(crate) fn check(address: IpAddr, allow: &[IpNet]) -> Result<IpAddr, &'static str> {
    let address = plain(address);
    let granted = |address: IpAddr| allow.iter().any(|net| net.contains(&address));
    let one_by_one =
        |address: IpAddr| allow.iter().any(|net| net.prefix_len() == net.max_prefix_len() && net.addr() == address);
    let judge = |address: IpAddr| match special(address) {
        Some(METADATA) if one_by_one(address) => Ok(()),
        Some(METADATA) => Err(METADATA),
        Some(_) if granted(address) => Ok(()),
        Some(range) => Err(range),
        None => Ok(()),
    };
    judge(address)?;
    if let IpAddr::V6(v6) = address {
        embedded(v6).into_iter().flatten().try_for_each(|v4| judge(v4.into()))?;
    }
    Ok(address)
}

const METADATA: &str = "the address of a metadata service";

type V4Range = ([u8; 4], u8, &'static str);
type V6Range = ([u16; 8], u8, &'static str);

/// IANA's special-purpose registry, and what else does not lead to a host of the public Internet. The first that fits
/// counts.
const V4: &[V4Range] = &[
    ([169, 254, 169, 254], 32, METADATA),
    ([169, 254, 170, 2], 32, METADATA),
    ([169, 254, 170, 23], 32, METADATA),
    ([100, 100, 100, 200], 32, METADATA),
    ([168, 63, 129, 16], 32, METADATA),
    ([192, 0, 0, 192], 32, METADATA),
    ([0, 0, 0, 0], 8, "an unspecified address"),
    ([10, 0, 0, 0], 8, "a private address"),
    ([100, 64, 0, 0], 10, "a shared address of a provider"),
    ([127, 0, 0, 0], 8, "a loopback address"),
    ([169, 254, 0, 0], 16, "a link-local address"),
    ([172, 16, 0, 0], 12, "a private address"),
    ([192, 0, 0, 0], 24, "an address reserved for protocols"),
    ([192, 0, 2, 0], 24, "an address for documentation"),
    ([192, 31, 196, 0], 24, "an address reserved for protocols"),
    ([192, 52, 193, 0], 24, "an address reserved for protocols"),
    ([192, 88, 99, 0], 24, "an address reserved for protocols"),
    ([192, 168, 0, 0], 16, "a private address"),
    ([192, 175, 48, 0], 24, "an address reserved for protocols"),
    ([198, 18, 0, 0], 15, "an address for benchmarks"),
    ([198, 51, 100, 0], 24, "an address for documentation"),
    ([203, 0, 113, 0], 24, "an address for documentation"),
    ([224, 0, 0, 0], 4, "a multicast address"),
    ([255, 255, 255, 255], 32, "the broadcast address"),
    ([240, 0, 0, 0], 4, "a reserved address"),
];

const V6: &[V6Range] = &[
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128, METADATA),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, METADATA),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "an unspecified address"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "a loopback address"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "an IPv4-compatible address"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "a local address translated to IPv4"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "a unique local address"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "a link-local address"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "a site-local address"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "a multicast address"),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "an address for benchmarks"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "an address for documentation"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "an address for documentation"),
];

/// In which special range it lies, not looking at what it embeds.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => V4.iter().find(|(net, bits, _)| v4_net(*net, *bits).contains(&v4)).map(|(.., name)| *name),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v6(v6: Ipv6Addr) -> Option<&'static str> {
    if let Some((.., name)) = V6.iter().find(|(net, bits, _)| v6_net(*net, *bits).contains(&v6)) {
        return Some(name);
    }
    let [first, second, ..] = v6.segments();
    // Teredo lies among the addresses for protocols and is judged by what it embeds.
    let for_protocols = first == 0x2001 && second < 0x200 && second != 0;
    let nat64 = v6_net([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96).contains(&v6);
    match first >> 13 {
        1 if !for_protocols => None,
        1 => Some("an address reserved for protocols"),
        _ if nat64 => None,
        _ => Some("a reserved address"),
    }
}

/// The IPv4 addresses to which packets for it go.
fn embedded(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let segments = v6.segments();
    let pair = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match segments {
        // The compatible form, and NAT64 with the well-known and with a local prefix.
        [0, 0, 0, 0, 0, 0, high, low] if v6 != Ipv6Addr::UNSPECIFIED && v6 != Ipv6Addr::LOCALHOST => {
            [pair(high, low), None]
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => [pair(high, low), None],
        // 6to4.
        [0x2002, high, low, ..] => [pair(high, low), None],
        // Teredo: its server, and the client with all bits turned.
        [0x2001, 0, high, low, _, _, client_high, client_low] => [pair(high, low), pair(!client_high, !client_low)],
        _ => [None, None],
    }
}

fn v4_net(net: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(net.into(), bits)
}

fn v6_net(net: [u16; 8], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(net.into(), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(address: &str, allow: &[&str]) -> Result<IpAddr, &'static str> {
        let allow: Vec<IpNet> = allow.iter().map(|net| net.parse().unwrap()).collect();
        check(address.parse().unwrap(), &allow)
    }

    #[test]
    fn h39_special_ranges_are_refused() {
        for address in [
            "127.0.0.1",
            "127.255.0.9",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "169.254.7.7",
            "fd00:ec2::254",
            "10.0.0.1",
            "10.255.255.255",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "224.0.0.1",
            "239.255.255.255",
            "ff02::1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "2001:db8::1",
            "3fff::1",
            "198.18.0.1",
            "198.19.255.255",
            "2001:2::1",
            "192.0.0.1",
            "192.0.0.192",
            "192.88.99.1",
            "168.63.129.16",
            "100::1",
            "5f00::1",
            "2001:10::1",
            "4000::1",
            "200::1",
        ] {
            assert!(verdict(address, &[]).is_err(), "{address}");
        }
    }

    #[test]
    fn ordinary_addresses_are_dialled() {
        for address in [
            "8.8.8.8",
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "3ffe::1",
        ] {
            assert_eq!(verdict(address, &[]), Ok(address.parse().unwrap()));
        }
    }

    #[test]
    fn h40_an_address_that_stands_for_another_is_judged_by_that_one() {
        for address in [
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::10.0.0.1",
            "::8.8.8.8",
            "64:ff9b::169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:2:3:4:808:808",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:7f00:1::f7f7:f7f7",
            "2001:0:808:808:0:0:80ff:fffe",
        ] {
            assert!(verdict(address, &[]).is_err(), "{address}");
        }
        assert_eq!(verdict("::ffff:8.8.8.8", &[]), Ok("8.8.8.8".parse().unwrap()));
        assert!(verdict("64:ff9b::8.8.8.8", &[]).is_ok());
        assert!(verdict("2002:808:808::1", &[]).is_ok());
        assert!(verdict("2001:0:808:808:0:0:f7f7:f7f7", &[]).is_ok());
    }

    #[test]
    fn a_granted_range_is_dialled_and_its_neighbours_are_not() {
        assert!(verdict("10.1.2.3", &["10.1.0.0/16"]).is_ok());
        assert!(verdict("::ffff:10.1.2.3", &["10.1.0.0/16"]).is_ok());
        assert!(verdict("10.2.0.1", &["10.1.0.0/16"]).is_err());
        assert!(verdict("::1", &["127.0.0.0/8"]).is_err());
        assert!(verdict("::1", &["::1/128"]).is_ok());
    }

    #[test]
    fn what_an_address_stands_for_must_be_granted_too() {
        assert!(verdict("64:ff9b::10.0.0.1", &["64:ff9b::/96"]).is_err());
        assert!(verdict("64:ff9b::10.0.0.1", &["10.0.0.0/8"]).is_ok());
        assert!(verdict("64:ff9b:1::10.0.0.1", &["10.0.0.0/8"]).is_err(), "the prefix is local");
        assert!(verdict("64:ff9b:1::10.0.0.1", &["10.0.0.0/8", "64:ff9b:1::/48"]).is_ok());
    }

    #[test]
    fn a_metadata_service_is_granted_by_its_own_address_alone() {
        for wide in ["169.254.0.0/16", "0.0.0.0/0", "169.254.169.254/31"] {
            assert!(verdict("169.254.169.254", &[wide]).is_err(), "{wide}");
        }
        assert!(verdict("169.254.169.254", &["169.254.169.254/32"]).is_ok());
        assert!(verdict("fd00:ec2::254", &["fc00::/7"]).is_err());
        assert!(verdict("fd00:ec2::1", &["fc00::/7"]).is_ok());
    }

    #[test]
    fn h40_every_spelling_of_a_host_has_one_form() {
        let loopback = Host::Address(Ipv4Addr::LOCALHOST.into());
        for spelling in [
            "127.0.0.1",
            "127.1",
            "127.0.0.1.",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "017700000001",
            "0177.0.0.1",
            "127。0。0。1",
            "１２７.０.０.１",
            "::ffff:127.0.0.1",
            "[::ffff:7f00:1]",
        ] {
            assert_eq!(Host::parse(spelling).unwrap(), loopback, "{spelling}");
        }
        let name = Host::Name("db.example".to_owned());
        for spelling in ["db.example", "DB.Example", "db.example.", "ｄｂ．example", "db。example"] {
            assert_eq!(Host::parse(spelling).unwrap(), name, "{spelling}");
        }
        assert_eq!(Host::parse("bücher.example").unwrap(), Host::Name("xn--bcher-kva.example".to_owned()));
        assert_eq!(Host::parse("[::1]").unwrap(), Host::parse("0:0:0:0:0:0:0:1").unwrap());
        assert_eq!(Host::parse("localhost.").unwrap(), Host::Name("localhost".to_owned()));
    }

    #[test]
    fn h40_more_than_a_host_is_refused() {
        for text in [
            "",
            ".",
            "user@db.example",
            "db.example:5432",
            "db.example/x",
            "db.example#",
            "db.example?x",
            "db example",
            "db\texample",
            "db.example\r\nHost: x",
            "%6c%6fcalhost",
            "[::1]:80",
            "[::1",
            "::1]",
            "a..b",
            "1.2.3.4.5",
            "0x100000000",
            "db.example\\",
            "fe80::1%eth0",
            "\u{0}",
            "db..",
            &"a".repeat(64),
            &"a.".repeat(130),
        ] {
            assert!(Host::parse(text).is_err(), "{text:?}: {:?}", Host::parse(text));
        }
    }
}
